package sweep

import (
	"fmt"
	"math"
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// A decimal is a number as it was typed: digits / 10^scale.
type decimal struct {
	digits *big.Int
	scale  int  // digits behind the point; below zero: zeros that are not written
	exp    bool // it was written with an exponent
}

// Bounds of what a number may be, so that no sum of them gets large.
const (
	maxDigits   = 60
	maxExponent = 300
)

var decimalForm = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^([+-]?)([0-9]*)(?:\.([0-9]*))?(?:[eE]([+-]?[0-9]{1,4}))?$`)
})

// parseDecimal reads 3, -0.25 or 1e-3. There is neither an infinity nor a NaN.
func parseDecimal(s string) (decimal, error) {
	m := decimalForm().FindStringSubmatch(s)
	if m == nil || m[2]+m[3] == "" {
		return decimal{}, fmt.Errorf("%s is not a number, which a range is of, without a unit (text of this form stands in double quotes)", quote(s))
	}
	d := decimal{digits: new(big.Int), scale: len(m[3]), exp: m[4] != ""}
	if d.exp {
		e, _ := strconv.Atoi(m[4])
		d.scale -= e
	}
	if len(m[2])+len(m[3]) > maxDigits || d.scale > maxExponent || d.scale < -maxExponent {
		return decimal{}, fmt.Errorf("%s has more than %d digits, or an exponent beyond %d", quote(s), maxDigits, maxExponent)
	}
	d.digits.SetString(m[1]+m[2]+m[3], 10)
	return d, nil
}

// at is d's digits with that scale, which is not less than its own.
func (d decimal) at(scale int) *big.Int {
	return new(big.Int).Mul(d.digits, power(scale-d.scale))
}

func power(n int) *big.Int { return new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil) }

// rat is the number itself.
func (d decimal) rat() *big.Rat {
	if d.scale < 0 {
		return new(big.Rat).SetInt(d.at(0))
	}
	return new(big.Rat).SetFrac(d.digits, power(d.scale))
}

// String writes the number with all its digits, or with an exponent if it was
// written so and is very large or very small.
func (d decimal) String() string {
	sign, text := "", new(big.Int).Abs(d.digits).String()
	if d.digits.Sign() < 0 {
		sign = "-"
	}
	if d.exp {
		for d.digits.Sign() != 0 && len(text) > 1 && text[len(text)-1] == '0' {
			text, d.scale = text[:len(text)-1], d.scale-1
		}
		if d.digits.Sign() == 0 {
			return "0"
		}
		if e := len(text) - 1 - d.scale; e < -6 || e >= 15 {
			if len(text) > 1 {
				text = text[:1] + "." + text[1:]
			}
			return fmt.Sprintf("%s%se%d", sign, text, e)
		}
	}
	switch {
	case d.scale < 0:
		text += strings.Repeat("0", -d.scale)
	case d.scale > 0:
		text = strings.Repeat("0", max(0, d.scale+1-len(text))) + text
		text = text[:len(text)-d.scale] + "." + text[len(text)-d.scale:]
	}
	return sign + text
}

// A run is a range of numbers.
type run struct {
	lo, hi, step decimal
	n            int64
	spaced, log  bool // n numbers from lo to hi, evenly or by their logarithms
}

func (r *run) len() int64 { return r.n }

func (r *run) value(i int64) string {
	switch {
	case !r.spaced:
		scale := max(r.lo.scale, r.step.scale)
		v := new(big.Int).Mul(r.step.at(scale), big.NewInt(i))
		return decimal{v.Add(v, r.lo.at(scale)), scale, r.lo.exp || r.step.exp}.String()
	case i == 0:
		return r.lo.String()
	case i == r.n-1:
		return r.hi.String()
	case r.log:
		lo, _ := r.lo.rat().Float64()
		hi, _ := r.hi.rat().Float64()
		x := math.Log10(math.Abs(lo)) + float64(i)/float64(r.n-1)*(math.Log10(math.Abs(hi))-math.Log10(math.Abs(lo)))
		return format(math.Copysign(math.Pow(10, x), lo), 12)
	}
	lo := r.lo.rat()
	v := new(big.Rat).Sub(r.hi.rat(), lo)
	v.Mul(v, big.NewRat(i, r.n-1)).Add(v, lo)
	if digits, exact := v.FloatPrec(); exact && digits <= max(maxDigits, r.lo.scale, r.hi.scale) {
		return v.FloatString(digits)
	}
	x, _ := v.Float64()
	return format(x, 15)
}

// format writes x with so many digits, and with an exponent only below 0.0001 and from 1e15
// on: many programs do not read 1e+06 as a whole number.
func format(x float64, digits int) string {
	x, _ = strconv.ParseFloat(strconv.FormatFloat(x, 'e', digits-1, 64), 64)
	form := byte('g')
	if size := math.Abs(x); size >= 1 && size < 1e15 {
		form = 'f'
	}
	return strconv.FormatFloat(x, form, -1, 64)
}

// parseStep reads lo:hi:step.
func parseStep(lo, hi, step string) (*run, error) {
	r := new(run)
	if err := r.ends(lo, hi); err != nil {
		return nil, err
	}
	var err error
	if r.step, err = parseDecimal(step); err != nil {
		return nil, err
	}
	scale := max(r.lo.scale, r.hi.scale, r.step.scale)
	way, by := new(big.Int).Sub(r.hi.at(scale), r.lo.at(scale)), r.step.at(scale)
	switch {
	case by.Sign() == 0:
		return nil, fmt.Errorf("a step of 0 comes to no end")
	case way.Sign() != 0 && way.Sign() != by.Sign():
		return nil, fmt.Errorf("%s is not on the way from %s by steps of %s, so there is no value", hi, lo, step)
	}
	n := way.Quo(way, by)
	if n.Add(n, big.NewInt(1)); n.Cmp(big.NewInt(maxLen)) > 0 {
		return nil, fmt.Errorf("there are %v values, more than can be counted here", short(n))
	}
	r.n = n.Int64()
	return r, nil
}

// parseSpaced reads lo..hi/n and lo..hi/nlog.
func parseSpaced(lo, hi, count string) (*run, error) {
	r := &run{spaced: true}
	if err := r.ends(lo, hi); err != nil {
		return nil, err
	}
	count, r.log = strings.CutSuffix(count, "log")
	n, err := strconv.ParseInt(count, 10, 64)
	switch {
	case err != nil || n < 2 || n > maxLen || count[0] == '+':
		return nil, fmt.Errorf("after / comes how many values there are, 2 or more, as %s..%s/5 or %[1]s..%[2]s/5log", lo, hi)
	case r.log && r.lo.digits.Sign()*r.hi.digits.Sign() <= 0:
		return nil, fmt.Errorf("from %s to %s are no logarithms: both have to be above 0, or both below", lo, hi)
	}
	r.n = n
	return r, nil
}

func (r *run) ends(lo, hi string) (err error) {
	if r.lo, err = parseDecimal(lo); err != nil {
		return err
	}
	r.hi, err = parseDecimal(hi)
	return err
}

// short writes a count, and a very long one by its length.
func short(n *big.Int) string {
	if s := n.String(); len(s) <= 30 {
		return s
	} else {
		return fmt.Sprintf("about 1e%d", len(s)-1)
	}
}
