package stores

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/rpc"
	"os"

	"github.com/holdfast-go/holdfast/itest/job"
)

// Serve is the service behind the stores that are reached by HTTP, and those in memory. It makes
// the counters of all stores, and calls ready. It returns only if it cannot serve. It writes errors
// of its guards, except refusals, to the standard error.
func Serve(at job.Stores, keys []string, ready func()) error {
	c, err := behind(at)
	if err != nil {
		return err
	}
	web, err := net.Listen("unix", at.HTTP)
	if err != nil {
		return err
	}
	memory, err := net.Listen("unix", at.Memory)
	if err != nil {
		return err
	}
	server := rpc.NewServer()
	if err := server.Register(newMemory()); err != nil {
		return err
	}
	go server.Accept(memory)
	if err := create(at, keys); err != nil {
		return err
	}
	ready()
	return http.Serve(web, handler(c, func(err error) { fmt.Fprintln(os.Stderr, "service:", err) }))
}

func create(at job.Stores, keys []string) error {
	all, err := Open(at)
	if err != nil {
		return err
	}
	for _, s := range all {
		if err := s.Create(context.Background(), keys); err != nil {
			return errors.Join(fmt.Errorf("%s: %w", s.Name, err), Close(all))
		}
	}
	return Close(all)
}
