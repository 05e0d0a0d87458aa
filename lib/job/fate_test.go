package job

import "testing"

// An unknown fate is no record, and a known one comes back as it was written.
func TestFatesInLogs(t *testing.T) {
	for _, fate := range []Fate{FateEnded, FateUnstarted, FateNoRoom, FateBarred, FateNodePaused, FateBuildFailed, FateEvicted, FateNoMemory, FateLost} {
		var got Record
		if err := RecordLine().Read(RecordLine().Append(nil, &Record{Kind: KindBack, Fate: fate}), &got, nil); err != nil || got.Fate != fate {
			t.Errorf("the fate %q is read as %q: %v", fate, got.Fate, err)
		}
	}
	if err := RecordLine().Read(RecordLine().Append(nil, &Record{Kind: KindBack, Fate: "odd"}), &Record{}, nil); err == nil {
		t.Error("an unknown fate is taken")
	}
}
