package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"
)

const longestRound = 5 * time.Minute

// Member is one rank: in each round it runs the application's program and sends its number to all other ranks.
type Member struct {
	rank    int
	key     []byte
	hosts   []string
	command []string

	mutex  sync.Mutex
	rounds map[string]*round
}

// round holds the numbers received in one round, by rank.
type round struct {
	numbers map[int]int64
	more    chan struct{}
}

func (m *Member) do(ending context.Context, what order) (answer, error) {
	limit, stop := context.WithTimeout(ending, longestRound)
	defer stop()
	switch what.Do {
	case "put":
		m.take(what)
		return answer{}, nil
	case "work":
		return m.work(limit, what)
	case "sum":
		return m.lead(limit, what)
	}
	return answer{}, fmt.Errorf("nobody knows how to do %q", what.Do)
}

// lead makes all ranks run one round, and compares their sums.
func (m *Member) lead(limit context.Context, what order) (answer, error) {
	if m.rank != 0 {
		return answer{}, errors.New("only rank 0 leads")
	}
	if what.Size < 1 || what.Size > len(m.hosts) {
		return answer{}, fmt.Errorf("%d ranks cannot take part: there are at most %d", what.Size, len(m.hosts))
	}
	chance := make([]byte, 8)
	if _, err := rand.Read(chance); err != nil {
		return answer{}, err
	}
	work := order{Do: "work", Round: hex.EncodeToString(chance), Size: what.Size}
	found := make([]answer, what.Size)
	if err := each(what.Size, func(rank int) (err error) {
		found[rank], err = call(limit, m.hosts[rank], m.key, work)
		return err
	}); err != nil {
		return answer{}, err
	}
	total := answer{Sum: found[0].Sum}
	for rank, one := range found {
		if one.Sum != total.Sum {
			return answer{}, fmt.Errorf("rank %d has the sum %d, rank 0 has %d", rank, one.Sum, total.Sum)
		}
		total.Messages += one.Messages
	}
	fmt.Printf("%d ranks agree on %d\n", what.Size, total.Sum)
	return total, nil
}

// work runs the program, sends its number to every other rank, and adds up the received numbers.
func (m *Member) work(limit context.Context, what order) (answer, error) {
	if m.rank >= what.Size || what.Size > len(m.hosts) {
		return answer{}, fmt.Errorf("takes no part among %d", what.Size)
	}
	defer m.forget(what.Round)
	number, err := m.run(limit, what.Size)
	if err != nil {
		return answer{}, err
	}
	put := order{Do: "put", Round: what.Round, From: m.rank, Number: number}
	m.take(put)
	if err := each(what.Size, func(rank int) error {
		if rank == m.rank {
			return nil
		}
		_, err := call(limit, m.hosts[rank], m.key, put)
		return err
	}); err != nil {
		return answer{}, err
	}
	sum, err := m.total(limit, what)
	return answer{Sum: sum, Messages: int64(what.Size - 1)}, err
}

// run executes the application's program and parses the number that it prints.
func (m *Member) run(limit context.Context, size int) (int64, error) {
	program := exec.CommandContext(limit, m.command[0], m.command[1:]...)
	program.Env = append(os.Environ(), fmt.Sprintf("RANK=%d", m.rank), fmt.Sprintf("SIZE=%d", size))
	program.Stderr = os.Stderr
	said, err := program.Output()
	if err != nil {
		return 0, fmt.Errorf("%s: %w", m.command[0], err)
	}
	number, err := strconv.ParseInt(strings.TrimSpace(string(said)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s says %q, which is no number", m.command[0], said)
	}
	return number, nil
}

func (m *Member) take(what order) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	one := m.open(what.Round)
	one.numbers[what.From] = what.Number
	close(one.more)
	one.more = make(chan struct{})
}

func (m *Member) total(limit context.Context, what order) (int64, error) {
	for {
		m.mutex.Lock()
		one := m.open(what.Round)
		count, sum, more := len(one.numbers), int64(0), one.more
		for _, number := range one.numbers {
			sum += number
		}
		m.mutex.Unlock()
		if count == what.Size {
			return sum, nil
		}
		select {
		case <-more:
		case <-limit.Done():
			return 0, fmt.Errorf("%d of %d ranks have sent their number", count, what.Size)
		}
	}
}

// open returns a round, or creates it, because another rank may be ahead of this one. The mutex is held.
func (m *Member) open(name string) *round {
	one, known := m.rounds[name]
	if !known {
		one = &round{numbers: map[int]int64{}, more: make(chan struct{})}
		m.rounds[name] = one
		time.AfterFunc(2*longestRound, func() { m.forget(name) })
	}
	return one
}

func (m *Member) forget(name string) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	delete(m.rounds, name)
}

// each runs a function for all ranks in parallel, and returns the first error.
func each(size int, do func(rank int) error) error {
	failed := make(chan error, size)
	for rank := 0; rank < size; rank++ {
		go func(rank int) { failed <- do(rank) }(rank)
	}
	var first error
	for count := 0; count < size; count++ {
		if err := <-failed; err != nil && first == nil {
			first = err
		}
	}
	return first
}
