package presence

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
)

// An input counts how often keyboards, mice and touchpads had something to say:
// interrupts of the PS/2 controller and of devices on I2C and SPI, and transfers of
// USB devices. What they say is never read.
type input struct {
	root   string
	counts map[string]uint64 // by device, as they were last; nil: never looked at
	names  []string          // of what is at USB
	usb    []string          // of these, what people type at or move
	buf    bytes.Buffer
}

func (in *input) look(_ context.Context, m Moment) Reading {
	counts, err := in.count()
	if err != nil {
		return Reading{Err: err}
	}
	before := in.counts
	in.counts = counts
	devices := slices.Sorted(maps.Keys(counts))
	if len(devices) == 0 && len(before) == 0 {
		return Reading{Err: absence("no keyboard or mouse whose interrupts are counted")}
	}
	for _, d := range devices {
		if was, known := before[d]; before != nil && (!known || was != counts[d]) {
			return Reading{Seen: true, Last: m.Uptime, What: "input " + d}
		}
	}
	return Reading{What: "counts of " + strings.Join(devices, ", ")}
}

// count is how often each device had something to say.
func (in *input) count() (map[string]uint64, error) {
	counts := map[string]uint64{}
	if err := in.interrupts(counts); err != nil {
		return nil, err
	}
	names, err := namesIn(in.root + "/sys/bus/usb/devices")
	if err != nil {
		return nil, err
	}
	if slices.Sort(names); !slices.Equal(names, in.names) {
		in.names, in.usb = names, in.people(names)
	}
	for _, d := range in.usb {
		b, err := os.ReadFile(in.root + "/sys/bus/usb/devices/" + d + "/urbnum")
		if errors.Is(err, fs.ErrNotExist) {
			continue // it was pulled out
		}
		n, perr := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
		if err := errors.Join(err, perr); err != nil {
			return nil, fmt.Errorf("transfers of the USB device %s: %w", d, err)
		}
		counts["usb "+d] = n
	}
	return counts, nil
}

// people is those USB devices that are for people's hands, and nothing else: each
// of their interfaces is of the class 03, or of the maker's own, and the kernel has
// made an input device of one. The other classes have transfers of their own.
func (in *input) people(names []string) (devices []string) {
	bus := in.root + "/sys/bus/usb/devices/"
	hands, other := map[string]bool{}, map[string]bool{}
	for _, name := range names {
		device, _, ok := strings.Cut(name, ":")
		if !ok {
			continue
		}
		class, _ := os.ReadFile(bus + name + "/bInterfaceClass")
		switch strings.TrimSpace(string(class)) {
		case "03":
			if made, _ := fs.Glob(os.DirFS(bus+name), "*/input"); len(made) > 0 {
				hands[device] = true
			}
		case "ff":
		default:
			other[device] = true
		}
	}
	for d := range hands {
		if !other[d] {
			devices = append(devices, d)
		}
	}
	slices.Sort(devices)
	return devices
}

// interrupts adds those of the controller of keyboard and mouse, and of devices for
// people's hands on I2C (bus 0018) and SPI (001C), whose lines have their names.
func (in *input) interrupts(counts map[string]uint64) error {
	f, err := os.Open(in.root + "/proc/interrupts")
	if err != nil {
		return err
	}
	defer f.Close()
	in.buf.Reset()
	if _, err := in.buf.ReadFrom(io.LimitReader(f, 16<<20)); err != nil {
		return err
	}
	lines := map[string]bool{"i8042": true}
	hid, err := namesIn(in.root + "/sys/bus/hid/devices")
	if err != nil {
		return err
	}
	for _, name := range hid {
		if !strings.HasPrefix(name, "0018:") && !strings.HasPrefix(name, "001C:") {
			continue
		}
		if to, err := os.Readlink(in.root + "/sys/bus/hid/devices/" + name); err == nil {
			above := path.Base(path.Dir(to))
			lines[strings.TrimPrefix(strings.TrimPrefix(above, "i2c-"), "spi-")] = true
		}
	}
	for line := range bytes.Lines(in.buf.Bytes()) {
		words := bytes.Fields(line)
		if len(words) < 3 || !bytes.HasSuffix(words[0], []byte(":")) {
			continue
		}
		for name := range bytes.SplitSeq(words[len(words)-1], []byte(",")) {
			if lines[string(name)] {
				counts[string(name)+" "+string(bytes.TrimSuffix(words[0], []byte(":")))] = sum(words[1:])
			}
		}
	}
	return nil
}

// sum adds up the numbers that a line of /proc/interrupts begins with, one a cpu.
func sum(words [][]byte) (n uint64) {
	for _, w := range words {
		v, err := strconv.ParseUint(string(w), 10, 64)
		if err != nil {
			break
		}
		n += v
	}
	return n
}
