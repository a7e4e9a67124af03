// SPDX-License-Identifier: MIT
//
// The Go side of the comparison: redsync, bsm/redislock and rueidislock, each
// used as its own documents say. A goroutine for each that wants a lock.
//
//	peer LIBRARY URL
//
// Orders come one a line on standard input; see peers/run.py.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredis9 "github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
	"golang.org/x/sys/unix"
)

const lease = 30 * time.Second

// A locker takes a lock, waiting as its library does, and gives what releases it.
type locker func(name string) (release func())

func die(err error) {
	fmt.Fprintln(os.Stderr, "peer:", err)
	os.Exit(1)
}

// The clock that all processes share.
func now() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		die(err)
	}
	return ts.Nano()
}

func openRedsync(addr string) locker {
	client := goredis9.NewClient(&goredis9.Options{Addr: addr})
	rs := redsync.New(goredis.NewPool(client))
	return func(name string) func() {
		m := rs.NewMutex(name, redsync.WithExpiry(lease), redsync.WithTries(1<<30))
		if err := m.Lock(); err != nil {
			die(err)
		}
		return func() {
			if ok, err := m.Unlock(); !ok || err != nil {
				die(fmt.Errorf("unlock: %v %v", ok, err))
			}
		}
	}
}

func openRedislock(addr string) locker {
	client := redislock.New(goredis9.NewClient(&goredis9.Options{Addr: addr}))
	ctx := context.Background()
	wait := &redislock.Options{RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond)}
	return func(name string) func() {
		l, err := client.Obtain(ctx, name, lease, wait)
		for err == redislock.ErrNotObtained {
			l, err = client.Obtain(ctx, name, lease, wait)
		}
		if err != nil {
			die(err)
		}
		return func() {
			if err := l.Release(ctx); err != nil {
				die(err)
			}
		}
	}
}

func openRueidislock(addr string) locker {
	l, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   rueidis.ClientOption{InitAddress: []string{addr}},
		KeyMajority:    1,
		NoLoopTracking: true,
	})
	if err != nil {
		die(err)
	}
	return func(name string) func() {
		_, cancel, err := l.WithContext(context.Background(), name)
		if err != nil {
			die(err)
		}
		return func() { cancel() }
	}
}

type order struct {
	verb, kind, name, file string
	n, ms, hold, pause     int
}

// Each of n with a lock of its own.
func pairs(take locker, o order) int64 {
	var stop atomic.Bool
	var count atomic.Int64
	var all sync.WaitGroup
	for i := 0; i < o.n; i++ {
		all.Add(1)
		go func(name string) {
			defer all.Done()
			for mine := int64(0); ; mine++ {
				if stop.Load() {
					count.Add(mine)
					return
				}
				take(name)()
			}
		}(fmt.Sprintf("%s%d", o.name, i))
	}
	time.Sleep(time.Duration(o.ms) * time.Millisecond)
	stop.Store(true)
	all.Wait()
	return count.Load()
}

func sleepMicros(us int) {
	if us > 0 {
		time.Sleep(time.Duration(us) * time.Microsecond)
	}
}

// All of n want one lock; each hold is noted.
func contend(take locker, o order) int64 {
	file, err := os.Create(o.file)
	if err != nil {
		die(err)
	}
	log := bufio.NewWriter(file)
	var mu sync.Mutex
	var stop atomic.Bool
	var count int64
	var all sync.WaitGroup
	for i := 0; i < o.n; i++ {
		all.Add(1)
		go func(who int) {
			defer all.Done()
			for !stop.Load() {
				asked := now()
				release := take(o.name)
				got := now()
				sleepMicros(o.hold)
				end := now()
				release()
				mu.Lock()
				count++
				fmt.Fprintln(log, who, asked, got, end)
				mu.Unlock()
				sleepMicros(o.pause)
			}
		}(i)
	}
	time.Sleep(time.Duration(o.ms) * time.Millisecond)
	stop.Store(true)
	all.Wait()
	if log.Flush() != nil || file.Close() != nil {
		die(fmt.Errorf("%s cannot be written", o.file))
	}
	return count
}

func run(take locker, o order) int64 {
	switch o.verb {
	case "pairs":
		return pairs(take, o)
	case "contend":
		return contend(take, o)
	case "hold":
		for i := 0; i < o.n; i++ {
			kept = append(kept, take(fmt.Sprintf("%s%d", o.name, i)))
		}
	case "wait":
		for i := 0; i < o.n; i++ {
			go take(o.name)
		}
	default:
		die(fmt.Errorf("unknown order %s", o.verb))
	}
	return int64(o.n)
}

var kept []func()

func main() {
	open := map[string]func(string) locker{
		"redsync":     openRedsync,
		"redislock":   openRedislock,
		"rueidislock": openRueidislock,
	}
	if len(os.Args) != 3 || open[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: peer LIBRARY URL")
		os.Exit(2)
	}
	take := open[os.Args[1]](strings.TrimPrefix(os.Args[2], "redis://"))
	take("peers:warm")()
	fmt.Println(`{"ready": true}`)
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var o order
		fmt.Sscan(in.Text(), &o.verb, &o.kind, &o.n, &o.ms, &o.name, &o.hold, &o.pause, &o.file)
		if o.verb == "quit" {
			break
		}
		start := now()
		count := run(take, o)
		fmt.Printf("{\"count\": %d, \"seconds\": %.6f}\n", count, float64(now()-start)/1e9)
	}
}
