// Package durable makes bytes survive a power cut: it writes, publishes and
// appends so that afterwards either the old state is on the disk or the new
// one, and never a mixture.
//
// A file is written under a temporary name in the directory where it will
// stand, synced, closed, renamed, and then the directory is synced
// ([WriteFile], [CreateNew]). A directory is filled out of sight, synced
// ([SyncTree]) and put in place by a rename that replaces nothing
// ([Publish]). What only grows is a [Log].
//
// A return without an error from WriteFile, CreateNew, SyncDir, SyncTree,
// SyncFile, SyncFS, SyncAll, Sync, Syncfs and Log.Sync means that a power cut in the next instant
// loses nothing of what they name. Publish and Log.Flush give no such promise;
// they are for callers that sync many things together afterwards.
//
// An fsync that failed is never repeated on the same descriptor: the kernel
// reports a lost page once and then calls it clean.
//
// Steps ([Step]) are places where a crash test stops a program.
package durable
