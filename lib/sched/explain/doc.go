// Package explain tells people why jobs wait: by the predicates with which package policy
// decides, in words that somebody can act on. It decides nothing.
//
//   - why.go: what is in the way of the jobs of a queue on each node, which go first, and
//     until when.
//   - nowhere.go: why no node could take them at all.
//   - words.go: what they ask for, by whom a node is paused, what is in use.
package explain
