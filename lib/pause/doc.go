// Package pause is how a person says that the jobs of a machine are to stand
// still: a file in a place, which is a directory that every user may write to.
// Whoever runs jobs reads the places and obeys, each by itself, so that it works
// while no daemon lives. dspool(5) has the format.
//
// What is in a place was written by any user of the machine. Who holds a pause is
// the owner of its file and nothing that the file says; what cannot be understood
// is passed over.
package pause
