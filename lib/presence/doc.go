// Package presence says whether somebody is at this machine: from sessions, from
// when terminals were typed at, from how often input devices had something to say,
// and from work that is not ours. No event of an input device is ever read.
//
// It would rather see somebody who is not there than miss one who is.
// dnoded(8), Who is at the desk, has the rules.
package presence
