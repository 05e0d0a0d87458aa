package cli

import (
	"fmt"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
)

// option is one letter, or one word, of a command's options.
type option struct {
	name  string
	set   func(value string) error // nil for a boolean
	on    *bool                    // of a boolean
	many  bool                     // may be given more than once
	count int
}

func (c *Cmd) add(o *option) {
	if c.option(o.name) != nil {
		panic("option -" + o.name + " is defined twice")
	}
	c.flags = append(c.flags, o)
}

// Bool defines an option without a value. Giving it twice is giving it once.
func (c *Cmd) Bool(name string) *bool {
	on := new(bool)
	c.add(&option{name: name, on: on, many: true})
	return on
}

// String defines an option with a value, which is def when it is not given.
func (c *Cmd) String(name, def string) *string {
	value := &def
	c.add(&option{name: name, set: func(s string) error { *value = s; return nil }})
	return value
}

// Strings defines an option with a value that may be given more than once. The
// values keep their order; without one the slice is nil.
func (c *Cmd) Strings(name string) *[]string {
	values := new([]string)
	c.add(&option{name: name, many: true, set: func(s string) error { *values = append(*values, s); return nil }})
	return values
}

// Int defines an option whose value is a whole number, def when not given.
func (c *Cmd) Int(name string, def int) *int {
	value := &def
	c.add(&option{name: name, set: func(s string) (err error) {
		if *value, err = strconv.Atoi(s); err != nil {
			return Usagef("-%s %q is not a whole number", name, s)
		}
		return nil
	}})
	return value
}

// Given says whether an option was on the command line, if only to say what is
// its default anyway. An option that is not defined was not given.
func (c *Cmd) Given(name string) bool {
	o := c.option(name)
	return o != nil && o.count > 0
}

// Parse reads the command line, after every option has been defined.
//
// Options stand anywhere before "--". Letters without a value can be joined
// (-nj), and the last of them may be one with a value. A value is the next word
// whatever that begins with, or the rest of its own (-ofile, -o=file). "-" alone
// is an operand. -h (--help) prints the usage to stdout, -V (--version) the
// command's version; both end the command with status 0. An unknown option, a
// missing or empty value and an option given twice that cannot repeat are usage errors.
//
// The options that the usage shows and those that are defined must be the same:
// anything else is a fault, and seen the first time that the command runs.
func (c *Cmd) Parse() error {
	if err := c.checkUsage(); err != nil {
		return err
	}
	words, operands := c.Args, []string(nil)
	for len(words) > 0 {
		word := words[0]
		words = words[1:]
		switch {
		case word == "--":
			c.Dashed = true
			if strings.Contains(c.usage, "-- ") {
				c.Command = words
			} else {
				operands = append(operands, words...)
			}
			words = nil
		case word == "-h" || word == "--help":
			fmt.Fprintln(c.Stdout, c.usage)
			return Quiet(OK)
		case word == "-V" || word == "--version":
			fmt.Fprintln(c.Stdout, c.Name, version())
			return Quiet(OK)
		case len(word) > 1 && word[0] == '-':
			rest, err := c.parseWord(word, words)
			if err != nil {
				return err
			}
			words = rest
		default:
			operands = append(operands, word)
		}
	}
	c.Args = operands
	return nil
}

// parseWord reads the options in one word, and returns the words after it that
// are not a value of it.
func (c *Cmd) parseWord(word string, after []string) ([]string, error) {
	name, value, assigned := strings.Cut(word[1:], "=")
	if o := c.option(name); o != nil {
		return c.take(o, value, assigned, after)
	}
	if strings.HasPrefix(word, "--") {
		return nil, Usagef("unknown option %q", word)
	}
	for i, letter := range word[1:] {
		o := c.option(string(letter))
		if o == nil {
			return nil, Usagef("unknown option %q", "-"+string(letter))
		}
		if rest := word[1+i+len(string(letter)):]; o.set != nil && rest != "" {
			return c.take(o, strings.TrimPrefix(rest, "="), true, after)
		} else if o.set != nil {
			return c.take(o, "", false, after)
		}
		if _, err := c.take(o, "", false, nil); err != nil {
			return nil, err
		}
	}
	return after, nil
}

// take gives an option its value, from the words after it if it has none yet.
func (c *Cmd) take(o *option, value string, has bool, after []string) ([]string, error) {
	if o.count++; o.count > 1 && !o.many {
		return nil, Usagef("option -%s is given twice", o.name)
	}
	if o.set == nil {
		if has {
			return nil, Usagef("option -%s takes no value", o.name)
		}
		*o.on = true
		return after, nil
	}
	if !has {
		if len(after) == 0 {
			return nil, Usagef("option -%s needs a value", o.name)
		}
		value, after = after[0], after[1:]
	}
	if value == "" { // of a variable that is not set, most likely: the default is not meant
		return nil, Usagef("the value of option -%s is empty", o.name)
	}
	return after, o.set(value)
}

func (c *Cmd) option(name string) *option {
	for _, o := range c.flags {
		if o.name == name {
			return o
		}
	}
	return nil
}

// shown finds the options in a usage.
var shown = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[\s\[|(]-(-?[A-Za-z0-9]+)`) })

// checkUsage compares the options that are defined with those of the usage.
func (c *Cmd) checkUsage() error {
	seen := map[string]bool{"h": true, "V": true}
	for line := range strings.Lines(c.usage) {
		line, _, _ = strings.Cut(line, "-- ")
		for _, m := range shown().FindAllStringSubmatch(line, -1) {
			if c.option(m[1]) != nil {
				seen[m[1]] = true
				continue
			}
			for _, letter := range m[1] {
				seen[string(letter)] = true
			}
		}
	}
	for name := range seen {
		if c.option(name) == nil && name != "h" && name != "V" {
			return Errorf(Fault, "the usage shows -%s, which is not defined", name)
		}
	}
	for _, o := range c.flags {
		if !seen[o.name] {
			return Errorf(Fault, "-%s is defined, but the usage does not show it", o.name)
		}
	}
	return nil
}

// version is the version of the module that the go command put into the binary:
// a tag, or the commit and its time.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(unknown)"
	}
	return info.Main.Version
}
