// Package sweep makes cases of parameters: which values each takes, and which
// of them go together. The words in which that is said are told in dsweep(1).
// Numbers are decimals as they were typed, never binary fractions, and a case
// is made when it is asked for, so that a product costs no memory.
package sweep
