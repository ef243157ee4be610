// Minicluster is the machinery of a small batch cluster: one static program. A view brings it to pods whose image does not
// know it. `rank` runs in each of them; `sum` makes the leader run one round.
package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) < 2 {
		fail(errors.New("usage: minicluster new | install | rank | sum"))
	}
	verbs := map[string]func([]string) error{"new": create, "install": install, "rank": serve, "sum": ask}
	verb, known := verbs[os.Args[1]]
	if !known {
		fail(fmt.Errorf("%s is none of new, install, rank and sum", os.Args[1]))
	}
	if err := verb(os.Args[2:]); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "minicluster:", err)
	os.Exit(1)
}

// create makes the data that a cluster has once: a key, a label, and the names of its hosts. The name of their Job is not
// known yet: the kubelet replaces $(JOB).
func create(words []string) error {
	flags := flag.NewFlagSet("new", flag.ExitOnError)
	size := flags.Int("size", 1, "how many ranks there are at first")
	most := flags.Int("most", 1, "how many ranks there may be")
	command := flags.String("command", "", "what each rank runs, as a JSON list")
	into := flags.String("into", ".", "folder for the files key, label and hosts")
	flags.Parse(words)
	if *most < 1 || *most > 256 {
		return fmt.Errorf("the param most is %d: write a number from 1 to 256", *most)
	}
	if *size < 1 || *size > *most {
		return fmt.Errorf("the param size is %d: write a number from 1 to %d, which is the param most", *size, *most)
	}
	if _, err := program(*command); err != nil {
		return err
	}
	chance := make([]byte, 40)
	if _, err := rand.Read(chance); err != nil {
		return err
	}
	hosts := make([]string, *most)
	for rank := range hosts {
		hosts[rank] = fmt.Sprintf("$(JOB)-%d", rank)
	}
	files := map[string]string{
		"key":   hex.EncodeToString(chance[:32]),
		"label": hex.EncodeToString(chance[32:]),
		"hosts": strings.Join(hosts, ","),
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(*into, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// install copies this program into the view.
func install(words []string) error {
	if len(words) != 1 {
		return errors.New("usage: minicluster install FOLDER")
	}
	own, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer own.Close()
	copied, err := os.OpenFile(filepath.Join(words[0], "minicluster"), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(copied, own); err != nil {
		return err
	}
	return copied.Close()
}

// serve runs one rank until it is terminated.
func serve([]string) error {
	rank, err := strconv.Atoi(os.Getenv("JOB_COMPLETION_INDEX"))
	if err != nil {
		return errors.New("JOB_COMPLETION_INDEX is no number: a rank is a pod of an Indexed Job")
	}
	key, err := readKey(os.Getenv("KEY_FILE"))
	if err != nil {
		return err
	}
	command, err := program(os.Getenv("COMMAND"))
	if err != nil {
		return err
	}
	hosts := strings.Split(os.Getenv("HOSTS"), ",")
	for index, host := range hosts {
		hosts[index] = host + "." + os.Getenv("SERVICE")
	}
	ending, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	member := &Member{rank: rank, key: key, hosts: hosts, command: command, rounds: map[string]*round{}}
	if err := member.listen(ending); err != nil {
		return err
	}
	// A rank never completes: with exit code 0 its Job would not restart it.
	return errors.New("asked to end")
}

// ask makes the leader run one round, and writes the result to files.
func ask(words []string) error {
	flags := flag.NewFlagSet("sum", flag.ExitOnError)
	leader := flags.String("leader", "", "name or address of rank 0")
	size := flags.Int("size", 1, "how many ranks take part")
	keyFile := flags.String("key", "key", "file with the key")
	into := flags.String("into", "", "folder for the files sum and messages")
	within := flags.Duration("within", 5*time.Minute, "how long to wait for all of them")
	flags.Parse(words)
	key, err := readKey(*keyFile)
	if err != nil {
		return err
	}
	limit, stop := context.WithTimeout(context.Background(), *within)
	defer stop()
	said, err := call(limit, *leader, key, order{Do: "sum", Size: *size})
	if err != nil {
		return err
	}
	fmt.Printf("%d ranks have sent each other %d messages; the sum of their numbers is %d\n", *size, said.Messages, said.Sum)
	if *into == "" {
		return nil
	}
	for name, value := range map[string]int64{"sum": said.Sum, "messages": said.Messages} {
		if err := os.WriteFile(filepath.Join(*into, name), []byte(strconv.FormatInt(value, 10)), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// program parses the application's program and its arguments.
func program(text string) ([]string, error) {
	var command []string
	if err := json.Unmarshal([]byte(text), &command); err != nil || len(command) == 0 {
		return nil, fmt.Errorf(`the param command is %q: write a JSON list like ["sh", "-c", "echo $RANK"]`, text)
	}
	return command, nil
}

func readKey(path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("the key cannot be read: %w", err)
	}
	return []byte(strings.TrimSpace(string(text))), nil
}
