// Package presence says whether somebody is at this machine. Each source in table
// tells when somebody was active last: sessions, terminals, counts of input devices,
// and work that is not ours. No event of an input device is ever read.
//
// In doubt it reports somebody who is not there rather than miss one who is.
// dnoded(8), Who is at the desk, has the rules.
package presence
