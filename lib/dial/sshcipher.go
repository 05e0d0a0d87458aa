package dial

import (
	"slices"
	"strings"

	"golang.org/x/sys/cpu"
)

// defaultCiphers are those that ssh(1) offers, in its own order, where nobody has
// said which, in the versions 7.6 to 9.9. Later ones have the last two first.
const defaultCiphers = "chacha20-poly1305@openssh.com,aes128-ctr,aes192-ctr,aes256-ctr,aes128-gcm@openssh.com,aes256-gcm@openssh.com"

// ciphers are the options with which an ssh offers first what a processor does
// by itself, AES-GCM, which costs half of what ChaCha20 does. It offers the same
// as before, and nothing changes where somebody has said which ciphers it should
// offer, or the processor has no such instructions.
func (s sshSettings) ciphers(aes bool) []string {
	list, _ := s.value("ciphers")
	if !aes || list != defaultCiphers {
		return nil
	}
	all := strings.Split(list, ",")
	slices.SortStableFunc(all, func(a, b string) int { return isGCM(a) - isGCM(b) })
	return []string{"-o", "Ciphers=" + strings.Join(all, ",")}
}

func isGCM(cipher string) int {
	if strings.Contains(cipher, "-gcm@") {
		return 0
	}
	return 1
}

// hasAES says that the processor has instructions for all of AES-GCM.
func hasAES() bool {
	return cpu.X86.HasAES && cpu.X86.HasPCLMULQDQ || cpu.ARM64.HasAES && cpu.ARM64.HasPMULL
}
