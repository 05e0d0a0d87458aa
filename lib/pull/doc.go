// Package pull decides what of a result has to be brought here, and puts it in
// its place: below one directory, checked against the manifest, and never over
// a file that was changed here. dpull(1) is its specification.
//
// A [Place] is the directory of one job. [Place.Plan] compares it with a
// manifest; what the [Plan] wants is asked of the head, and the Plan is the
// [pack.Sink] that takes what arrives. A file is written under a hidden name
// beside its own, which holds its SHA-256, and renamed when its content is
// known to be right: so what is cut can go on, and nothing half written has
// the name of a result. The hidden file is locked while it is written, so that
// two pulls of the same job do not write into one file.
//
// What jobs read comes here too, for who runs them elsewhere: [Inputs].
//
// All names come from a manifest, that is from elsewhere. They are used below
// an [os.Root] only, and no link is followed, inside it or out of it.
package pull
