// Package noded is the life of a node: its sessions with the head, and the
// attempts that it was given, from the note of each to the removal of what it
// left; and, for what ran where no dnoded is, the session alone ([Tell]).
// dnoded(8) says what it does, dwire(5) what it says and is told,
// dspool(5) what it keeps.
package noded
