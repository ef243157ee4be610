package main

import (
	"bufio"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"
)

const (
	port      = "7700"
	longest   = 64 << 10
	handshake = 10 * time.Second
)

// order is a request from one rank to another: `put` delivers a number, `work` starts its part of a round, `sum` makes the
// leader run a round.
type order struct {
	Do     string `json:"do"`
	Round  string `json:"round,omitempty"`
	Size   int    `json:"size,omitempty"`
	From   int    `json:"from,omitempty"`
	Number int64  `json:"number,omitempty"`
}

type answer struct {
	Error    string `json:"error,omitempty"`
	Sum      int64  `json:"sum"`
	Messages int64  `json:"messages"`
}

// seal proves that the sender of a response to a nonce has the key.
func seal(key []byte, nonce string, text []byte) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(nonce + "\n"))
	mac.Write(text)
	return hex.EncodeToString(mac.Sum(nil))
}

// call sends one order and waits for the response. It retries, because a name resolves and a pod listens only some time
// after its Job was created.
func call(limit context.Context, host string, key []byte, what order) (answer, error) {
	if !strings.Contains(host, ":") {
		host = net.JoinHostPort(host, port)
	}
	for tries := 0; ; tries++ {
		connection, err := (&net.Dialer{Timeout: 2 * time.Second}).DialContext(limit, "tcp", host)
		if err == nil {
			return exchange(limit, connection, key, what)
		}
		select {
		case <-limit.Done():
			return answer{}, fmt.Errorf("%s is not there: %w", host, err)
		case <-time.After(200 * time.Millisecond):
			if tries%50 == 49 {
				fmt.Fprintf(os.Stderr, "minicluster: still waiting for %s: %s\n", host, err)
			}
		}
	}
}

func exchange(limit context.Context, connection net.Conn, key []byte, what order) (answer, error) {
	defer connection.Close()
	if until, bounded := limit.Deadline(); bounded {
		connection.SetDeadline(until)
	}
	reader := bufio.NewReader(io.LimitReader(connection, longest))
	nonce, err := reader.ReadString('\n')
	if err != nil {
		return answer{}, err
	}
	text, err := json.Marshal(what)
	if err != nil {
		return answer{}, err
	}
	if _, err := fmt.Fprintf(connection, "%s %s\n", seal(key, strings.TrimSuffix(nonce, "\n"), text), text); err != nil {
		return answer{}, err
	}
	var said answer
	if err := json.NewDecoder(reader).Decode(&said); err != nil {
		return answer{}, fmt.Errorf("%s gave no answer: %w", connection.RemoteAddr(), err)
	}
	if said.Error != "" {
		return answer{}, errors.New(said.Error)
	}
	return said, nil
}

// listen answers orders of callers that have the key, until it is cancelled.
func (m *Member) listen(ending context.Context) error {
	listener, err := net.Listen("tcp", ":"+port)
	if err != nil {
		return err
	}
	go func() {
		<-ending.Done()
		listener.Close()
	}()
	fmt.Printf("rank %d listens\n", m.rank)
	for {
		connection, err := listener.Accept()
		if ending.Err() != nil {
			return nil
		}
		if err == nil {
			go m.answer(ending, connection)
		}
	}
}

func (m *Member) answer(ending context.Context, connection net.Conn) {
	defer connection.Close()
	connection.SetDeadline(time.Now().Add(handshake))
	chance := make([]byte, 16)
	if _, err := rand.Read(chance); err != nil {
		return
	}
	nonce := hex.EncodeToString(chance)
	fmt.Fprintln(connection, nonce)
	line, err := bufio.NewReader(io.LimitReader(connection, longest)).ReadString('\n')
	if err != nil {
		return
	}
	proof, text, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
	said, err := answer{}, errors.New("the key is not this cluster's")
	if hmac.Equal([]byte(proof), []byte(seal(m.key, nonce, []byte(text)))) {
		var what order
		if err = json.Unmarshal([]byte(text), &what); err == nil {
			connection.SetDeadline(time.Now().Add(longestRound + handshake))
			said, err = m.do(ending, what)
		}
	}
	if err != nil {
		said = answer{Error: fmt.Sprintf("rank %d: %s", m.rank, err)}
	}
	json.NewEncoder(connection).Encode(said)
}
