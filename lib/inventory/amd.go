package inventory

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"distribute/lib/node"
)

// amd is what rocm-smi tells.
func (c *Cards) amd(ctx context.Context) ([]Card, []Fact) {
	text, err := c.ask(ctx, "rocm-smi", "--showproductname", "--showmeminfo", "vram", "--showdriverversion", "--json")
	if errors.Is(err, exec.ErrNotFound) {
		return nil, nil
	}
	var list []Card
	if err == nil {
		list, err = parseRadeons(text)
	}
	if err != nil {
		c.setFailed(true)
		return nil, []Fact{{"gpu", "jobs that want one", err.Error() + ": mend the driver"}}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.radeons = nil
	for _, g := range list {
		c.radeons = append(c.radeons, g.Index)
	}
	return list, nil
}

// A table is what rocm-smi prints with --json: for each card, and for the system
// as a whole, names and texts.
type table map[string]members

func parseTable(text string) (t table, err error) {
	// Warnings may stand before it.
	at := strings.IndexByte(text, '{')
	if at < 0 {
		return nil, errors.New("rocm-smi prints no JSON")
	}
	err = json.NewDecoder(strings.NewReader(text[at:])).Decode(&t)
	return t, err
}

// parseRadeons reads the table of the cards. The names of its members differ
// between versions in letters' case.
func parseRadeons(text string) ([]Card, error) {
	t, err := parseTable(text)
	if err != nil {
		return nil, err
	}
	driver := ""
	if v := t["system"].text("driver version"); v != "" {
		driver = "driver " + v
	}
	var list []Card
	for name := range t {
		i, err := strconv.Atoi(strings.TrimPrefix(name, "card"))
		if err != nil || i < 0 || !strings.HasPrefix(name, "card") {
			continue
		}
		m := t[name]
		g := Card{GPU: node.GPU{Index: i, Model: cmp.Or(m.text("card series"), m.text("card model"), m.text("device name"))}, Driver: driver}
		if n, err := strconv.ParseInt(m.text("vram total memory (b)"), 10, 64); err == nil && n > 0 {
			g.Memory = n
		}
		list = append(list, g)
	}
	slices.SortFunc(list, func(a, b Card) int { return cmp.Compare(a.Index, b.Index) })
	return list, nil
}

// A members is what it says of one.
type members map[string]any

// text is a member by its name in lower case, "" if it is unknown to the driver.
func (m members) text(name string) string {
	for k, v := range m {
		if s, ok := v.(string); ok && strings.ToLower(k) == name && s != "N/A" {
			return printable(s)
		}
	}
	return ""
}

// radeonUsers is the processes that use a card: PID1234 is a member of the system,
// and says with commas the program, on how many cards it is, and how many bytes it
// has there.
func radeonUsers(text string) (pids []int) {
	t, err := parseTable(text)
	if err != nil {
		return nil
	}
	for k, v := range t["system"] {
		s, _ := v.(string)
		pid, err := strconv.Atoi(strings.TrimPrefix(k, "PID"))
		f := strings.Split(s, ",")
		if err != nil || pid < 1 || !strings.HasPrefix(k, "PID") || len(f) < 3 {
			continue
		}
		if cards, bytes := printable(f[1]), printable(f[2]); cards != "0" || bytes != "0" {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids
}
