package testscripts

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// A group is a site at work: the head lab, the desks d1 to d5, of which d5 is
// behind the NAT of gate, and laptop, from where maria and ben come by ssh.
type group struct {
	*site
	key string // the head's
}

// TestGroup is a day of a group: the batch of README's demo over TLS and over ssh
// at the same time, while two desks are cut off, another gets a new address, the
// laptop loses its network and a desk is removed; two users, who have no hand in
// each other's batches.
//
// T80: peers that are gone without a word, over TLS and over ssh. X98: a desk that
// is shut out while it works.
func TestGroup(t *testing.T) {
	desks := []string{"d1", "d2", "d3", "d4", "d5"}
	s := newSite(t, append([]string{"lab", "laptop", "gate"}, desks...)...)
	s.people("lab", []string{"laptop"}, "maria", "ben")
	g := &group{site: s}
	g.nat("gate", "d5")
	g.startHead()
	var all sync.WaitGroup
	for _, desk := range desks {
		all.Go(func() { g.desk(desk) })
	}
	all.Wait()
	g.overTLS("d1", "d2", "d5")
	g.startedBySSH("d3")
	g.bySSH("d4")
	g.nodes(`d1 idle|d2 idle|d3 idle|d4 idle|d5 idle`)

	g.submit()
	g.strangers()
	g.cutOff()
	g.remove()
	g.results()
}

// as runs a script of a user at the laptop.
func (g *group) as(user, script string) string {
	g.t.Helper()
	return g.do("laptop", user, script)
}

// nodes waits until dquery -N says this of the nodes, a line each. Up is idle or
// busy.
func (g *group) nodes(want string) {
	g.t.Helper()
	re := regexp.MustCompile("^" + strings.NewReplacer("|", "\n", "up", "(?:idle|busy)").Replace(want) + "\n$")
	g.until("lab", "root", "dquery -N -c node,state | tr '\\t' ' '", re.MatchString)
	g.t.Log(want)
}

// nat puts a desk behind a gate, which is all that the others see of it.
func (g *group) nat(gate, desk string) {
	n, outside, inside := g.net, g.hosts[gate], g.hosts[desk]
	for _, err := range []error{
		n.ip(n.machine, "link del "+desk),
		n.ip(outside, fmt.Sprintf("link add eth1 type veth peer name eth0 netns %d", inside.holder.Process.Pid), "addr add 10.0.0.1/24 dev eth1", "link set eth1 up"),
		n.ip(inside, "addr add 10.0.0.2/24 dev eth0", "link set eth0 up", "route add default via 10.0.0.1"),
	} {
		if err != nil {
			g.t.Fatal(err)
		}
	}
	g.do(gate, "root", `echo 1 >/proc/sys/net/ipv4/ip_forward
nft -f - <<'END'
table ip nat {
 chain out {
  type nat hook postrouting priority srcnat
  oifname "eth0" masquerade
 }
}
END`)
}

// installed has the commands, units and users of a head or a node put in place.
func (g *group) install(host, of string) {
	g.t.Helper()
	g.do(host, "root", fmt.Sprintf(`mkdir -p /usr/local/bin /usr/local/lib/systemd
ln -s %[1]s/* /usr/local/bin
cp -r %[2]s /usr/local/lib/systemd/system
systemd-sysusers %[2]s/distribute-%[3]s.sysusers
case %[3]s in
head) install -d -o distribute -g distribute -m 750 /srv/spool ;;
node) systemd-tmpfiles --create %[2]s/distribute-node.tmpfiles
	install -d -o distribute-node -g distribute-node -m 711 /var/lib/distribute/node ;;
esac
`, os.Getenv("BIN"), filepath.Join(os.Getenv("TOP"), "scripts", "systemd"), of))
}

func (g *group) startHead() {
	g.install("lab", "head")
	g.key = strings.TrimSpace(g.do("lab", "root", "dadm init -g distribute /srv/spool"))
	g.do("lab", "root", `echo "listen: ['tls://']" >>/srv/spool/head.yaml
mkdir /etc/distribute
echo /srv/spool >/etc/distribute/head
usermod -aG distribute maria
usermod -aG distribute ben
systemctl start distribute-head`)
	g.do("laptop", "root", fmt.Sprintf("mkdir /etc/distribute /usr/local/bin; ln -s %s/* /usr/local/bin; echo ssh://lab >/etc/distribute/head", os.Getenv("BIN")))
}

// desk makes a node of a machine, which offers its name, and does not start it.
func (g *group) desk(name string) {
	g.install(name, "node")
	how := "tls"
	if name == "d3" || name == "d4" {
		how = "ssh"
	}
	g.do(name, "root", fmt.Sprintf("echo 'capabilities: [%s, %s]' >/var/lib/distribute/node/node.yaml; echo 'cpus: 2' >>/var/lib/distribute/node/node.yaml", name, how))
}

// overTLS has desks dial the head over TLS.
func (g *group) overTLS(desks ...string) {
	for _, desk := range desks {
		line := strings.Fields(g.do(desk, "root", "dnoded -init lab "+g.key))
		g.do(desk, "root", "systemctl start distribute-node")
		g.do("lab", "root", "dquery -N "+desk+" | grep pending; dadm accept "+strings.Join(line, " "))
	}
}

// bySSH has a desk dial the head over ssh.
func (g *group) bySSH(desk string) {
	host := strings.Fields(g.do("lab", "root", "ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub"))[1]
	line := g.do(desk, "root", "dnoded -init ssh://distribute@lab "+host)
	g.letIn("lab", "distribute", line)
	g.do(desk, "root", "systemctl start distribute-node")
}

// startedBySSH has the head start a desk over ssh.
func (g *group) startedBySSH(desk string) {
	g.do(desk, "root", "/usr/sbin/sshd -E /var/log/sshd.log")
	key := g.do("lab", "root", `cd /srv/spool/keys
ssh-keygen -q -t ed25519 -N '' -f ssh_key
ssh-keyscan -t ed25519 `+desk+` >known_hosts 2>/dev/null
chown distribute: ssh_key ssh_key.pub known_hosts
cat ssh_key.pub`)
	g.letIn(desk, "distribute-node", `restrict,port-forwarding,command="dnoded -stdio" `+key)
	g.do("lab", "root", "dadm accept "+desk+" ssh://distribute-node@"+desk)
}

// letIn adds a line to a user's authorized_keys.
func (g *group) letIn(host, user, line string) {
	g.do(host, "root", fmt.Sprintf("mkdir -p ~%[1]s/.ssh; cat >>~%[1]s/.ssh/authorized_keys <<'END'\n%[2]s\nEND\nchown -R %[1]s: ~%[1]s/.ssh; chmod 700 ~%[1]s/.ssh", user, strings.TrimSpace(line)))
}

// away are the desks that lose their network, where a job waits for a file.
var away = []string{"d1", "d2", "d4"}

// submit has maria submit the demo for desks over TLS and for those over ssh, and
// a job for each of away, and ben a private batch.
func (g *group) submit() {
	demo := filepath.Join(g.dir, "demo")
	if err := run("cp", "-r", filepath.Join(os.Getenv("TOP"), "scripts", "demo-batch"), demo); err != nil {
		g.t.Fatal(err)
	}
	if err := run("mv", demo, g.own("laptop", "home/maria/demo")); err != nil {
		g.t.Fatal(err)
	}
	g.do("laptop", "root", "chown -R maria /home/maria/demo")
	got := g.as("maria", `cd demo
for how in tls ssh; do
	sed "s/\[python3\]/[python3, $how]/; s/batch_name: .*/batch_name: over-$how/" burgers.yaml >$how.yaml
	dsubmit $how.yaml
done
for desk in d1 d2 d4; do dsubmit -b maria/on-$desk -R cpus=1,$desk -J j -- sh -c 'until test -e /srv/go; do sleep 0.2; done; hostname >where'; done`)
	if want := "demo/over-tls\ndemo/over-ssh\nmaria/on-d1\nmaria/on-d2\nmaria/on-d4\n"; got != want {
		g.t.Fatalf("submitted %q, not %q", got, want)
	}
	g.as("ben", `cat >own.yaml <<'END'
meta: {batch_name: own, namespace: ben}
private: true
command:
  jobs:
    - {name: j, run: [sh, -c, 'echo mine >secret']}
END
dsubmit own.yaml`)
	g.until("lab", "root", "dquery -a -c state 'batch=on-*' | grep -c running", func(out string) bool { return out == "3\n" })
}

// strangers has ben try what is maria's, and maria what is ben's.
func (g *group) strangers() {
	for _, c := range []struct{ user, script, says string }{
		{"ben", "dcancel maria/on-d1", "these are jobs of maria"},
		{"ben", "drm demo/over-tls", "they are another user's"},
		{"maria", "dquery ben/own", `no batch "ben/own"`},
		{"maria", "dpull ben/own", `no batch "ben/own"`},
		{"maria", "dcancel ben/own", `no batch "ben/own"`},
		{"maria", "dadm remove d1", "operator"},
	} {
		if out, err := g.try("laptop", c.user, c.script); err == nil || out != "" || !strings.Contains(err.Error(), c.says) {
			g.t.Errorf("%s: %s: it prints %q, and %v", c.user, c.script, out, err)
		}
	}
}

// cutOff takes the network from d1, which is over TLS, and d4, over ssh, gives d2 another address, and for a time takes
// it from the laptop, where somebody waits. What runs goes on, and comes home.
func (g *group) cutOff() {
	d1, d2, d4, laptop := g.hosts["d1"], g.hosts["d2"], g.hosts["d4"], g.hosts["laptop"]
	filter := func(m *machine, policy string) {
		if err := m.filter(policy, policy); err != nil {
			g.t.Fatal(err)
		}
	}
	g.as("maria", "dsubmit -b maria/first -- true | dwait -q")
	waiting := g.shell("laptop", "maria", "dwait maria/first maria/on-d1 maria/on-d2 maria/on-d4 demo/over-tls demo/over-ssh")
	var talk strings.Builder
	waiting.Stderr = &talk
	ended, err := waiting.StdoutPipe()
	if err == nil {
		err = waiting.Start()
	}
	if err != nil {
		g.t.Fatal(err)
	}
	lines := bufio.NewScanner(ended)
	if !lines.Scan() { // of the one that has ended
		g.t.Fatalf("dwait prints nothing: %v", waiting.Wait())
	}
	filter(d1, "policy drop;")
	filter(d4, "policy drop;")
	filter(laptop, "policy drop;")
	if err := g.net.ip(d2, "addr del "+d2.addr+"/24 dev eth0"); err != nil {
		g.t.Fatal(err)
	}
	g.nodes(`d1 silent|d2 silent|d3 up|d4 silent|d5 up`)
	filter(d1, "")
	filter(d4, "")
	filter(laptop, "")
	if err := g.net.ip(d2, "addr add 192.0.2.77/24 dev eth0"); err != nil {
		g.t.Fatal(err)
	}
	g.nodes(`d1 busy|d2 busy|d3 up|d4 busy|d5 up`)
	for _, host := range away {
		g.do(host, "root", "touch /srv/go")
	}
	n := 1
	for ; lines.Scan(); n++ {
	}
	if err := waiting.Wait(); err != nil || n != 28 {
		g.t.Errorf("dwait, whose laptop was cut off, printed %d lines: %v: %s", n, err, talk.String())
	}
	g.t.Logf("dwait, whose laptop was cut off: %s", talk.String())
	got := g.as("maria", "dquery -c id,state,node,attempt 'batch=on-*'; dpull -q -o home maria/on-d1 maria/on-d2 maria/on-d4 >pulled; cat home/maria/on-d?/j/where")
	if want := "maria/on-d1/j\tdone\td1\t1\nmaria/on-d2/j\tdone\td2\t1\nmaria/on-d4/j\tdone\td4\t1\nd1\nd2\nd4\n"; got != want {
		g.t.Errorf("of the jobs on desks that were away\n%s, not\n%s", got, want)
	}
}

// remove takes d5 off the list while it works. What it had is done elsewhere.
func (g *group) remove() {
	g.as("maria", "seq 6 | dsubmit -b maria/moved -R cpus=1,tls -- sh -c 'until test -e /srv/on; do sleep 0.2; done; hostname >where; : {}'")
	g.until("lab", "root", "dquery -a -c node maria/moved state=running", func(out string) bool { return strings.Contains(out, "d5") })
	had := g.do("lab", "root", "dadm remove -q d5")
	if !strings.HasPrefix(had, "maria/moved/") {
		g.t.Errorf("removed d5, which had %q", had)
	}
	g.do("lab", "root", "dadm lost -q d5")
	g.nodes(`d1 up|d2 up|d3 up|d4 up|d5 pending`)
	for _, host := range []string{"d1", "d2"} {
		g.do(host, "root", "touch /srv/on")
	}
	got := g.as("maria", "dwait -q maria/moved; dquery -c state,node maria/moved state=done | sort | uniq -c; dpull -q -o home maria/moved >pulled; cat home/maria/moved/*/where | grep -c '^d[12]$'")
	if strings.Contains(got, "d5") || !strings.HasSuffix(got, "\n6\n") {
		g.t.Errorf("of the jobs of a desk that was removed:\n%s", got)
	}
}

// results pulls all, and compares the numbers with those of the same cases here.
func (g *group) results() {
	g.as("maria", `dpull -q -o home demo/over-tls demo/over-ssh
cd home/demo
test $(ls over-tls | wc -l) = 12
test $(cat over-*/*/profile.svg | grep -c '</svg>') = 24
for job in $(ls over-tls); do cmp over-tls/$job/result.csv over-ssh/$job/result.csv; done
mkdir ~/here && cd ~/here && cp ../demo/*.py . && mkdir input && cp ../demo/cases.csv input && python3 build.py
for job in re=100_n=240_o=2 re=200_n=240_o=4; do
	DISTRIBUTE_JOB=$job python3 burgers.py
	cmp distribute_save/result.csv ../home/demo/over-tls/$job/result.csv
done`)
	if got := g.as("maria", "dquery -c state,node demo/over-tls demo/over-ssh state=done | sort | uniq -c | tr -s ' \\t' ' '"); strings.Count(got, "\n") < 4 {
		g.t.Errorf("who did the demo:\n%s", got)
	} else {
		g.t.Logf("who did the demo:\n%s", got)
	}
	if got := g.as("ben", "dpull -q -o home ben/own >pulled; cat home/ben/own/j/secret"); got != "mine\n" {
		g.t.Errorf("ben's result is %q", got)
	}
	for host, dir := range map[string]string{"lab": "-s -S /srv/spool", "d1": "-D /var/lib/distribute/node", "d3": "-D /var/lib/distribute/node"} {
		g.do(host, "root", "dfsck "+dir)
	}
}
