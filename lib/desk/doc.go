// Package desk is a node's directory: the attempts that the head gave to the
// node, with their files and how they ended, what their batches built, and the
// cache of inputs. Everything that a node must know after it was killed lies
// there; dspool(5) describes the format and what each crash can leave.
//
// One daemon uses a directory at a time. Its methods may be called from several
// goroutines, for one attempt from one at a time.
package desk
