package presence

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// The source input counts what keyboards, mice and touchpads send, and reads nothing
// of it: interrupts of the PS/2 controller and of devices on I2C and SPI, transfers
// of devices at USB.
type input struct {
	root   string
	counts map[string]uint64 // by device, at the last look; nil: there was none
}

func (in *input) look(_ context.Context, m Moment) (sighting, error) {
	counts := map[string]uint64{}
	if err := errors.Join(in.countInterrupts(counts), in.countUSB(counts)); err != nil {
		return sighting{}, err
	}
	before := in.counts
	in.counts = counts
	devices := slices.Sorted(maps.Keys(counts))
	for _, d := range devices {
		if was, known := before[d]; before != nil && (!known || was != counts[d]) {
			return sighting{m.Uptime, "input " + d}, nil
		}
	}
	if len(devices) == 0 && len(before) == 0 {
		return sighting{}, absent("no keyboard or mouse whose interrupts are counted")
	}
	return sighting{what: "counts of " + strings.Join(devices, ", ")}, nil
}

// countInterrupts counts those of i8042, the PS/2 controller, and those that have the
// name of a HID device on I2C (bus 0018) or SPI (bus 001C).
func (in *input) countInterrupts(counts map[string]uint64) error {
	hid := in.root + "/sys/bus/hid/devices/"
	names, err := namesIn(hid)
	if err != nil {
		return err
	}
	wanted := map[string]bool{"i8042": true}
	for _, name := range names {
		if strings.HasPrefix(name, "0018:") || strings.HasPrefix(name, "001C:") {
			link, _ := os.Readlink(hid + name)
			parent := path.Base(path.Dir(link)) // as in i2c-ELAN1200:00/0018:04F3:300F.0001
			wanted[strings.TrimPrefix(strings.TrimPrefix(parent, "i2c-"), "spi-")] = true
		}
	}
	b, err := os.ReadFile(in.root + "/proc/interrupts")
	if err != nil {
		return err
	}
	// A line is NUMBER: COUNT... WORD... NAME[,NAME...], with a count for each cpu.
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSpace(line)
		number, rest, _ := strings.Cut(line, ":")
		for name := range strings.SplitSeq(line[strings.LastIndexByte(line, ' ')+1:], ",") {
			if !wanted[name] {
				continue
			}
			var sum uint64
			for word := range strings.FieldsSeq(rest) {
				n, err := strconv.ParseUint(word, 10, 64)
				if err != nil {
					break
				}
				sum += n
			}
			counts[name+" "+number] = sum
		}
	}
	return nil
}

// countUSB counts the transfers of devices that are for people's hands and nothing
// else: each interface is HID (class 03) or of the maker's own class (ff), and the
// kernel has made an input device of one. Other classes transfer data of their own.
func (in *input) countUSB(counts map[string]uint64) error {
	bus := in.root + "/sys/bus/usb/devices/"
	names, err := namesIn(bus)
	if err != nil {
		return err
	}
	hands := map[string]bool{} // by device; false: it is something else besides
	for _, name := range names {
		device, _, isInterface := strings.Cut(name, ":")
		if !isInterface {
			continue
		}
		b, _ := os.ReadFile(bus + name + "/bInterfaceClass")
		class := strings.TrimSpace(string(b))
		made, _ := filepath.Glob(bus + name + "/*/input")
		if _, known := hands[device]; class == "03" && len(made) > 0 && !known {
			hands[device] = true
		} else if class != "03" && class != "ff" {
			hands[device] = false
		}
	}
	for device, count := range hands {
		b, err := os.ReadFile(bus + device + "/urbnum")
		if !count || errors.Is(err, fs.ErrNotExist) { // unplugged
			continue
		}
		n, perr := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
		if err := errors.Join(err, perr); err != nil {
			return fmt.Errorf("transfers of the USB device %s: %w", device, err)
		}
		counts["usb "+device] = n
	}
	return nil
}
