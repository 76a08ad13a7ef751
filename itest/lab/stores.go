//go:build unix

package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/holdfast-go/holdfast/internal/testserver/etcdtest"
	"github.com/holdfast-go/holdfast/internal/testserver/mariadbtest"
	"github.com/holdfast-go/holdfast/internal/testserver/postgrestest"
	"github.com/holdfast-go/holdfast/internal/testserver/versitytest"
	"github.com/holdfast-go/holdfast/itest/history"
	"github.com/holdfast-go/holdfast/itest/job"
	"github.com/holdfast-go/holdfast/itest/stores"
)

// startStores starts the servers of all guarded stores, and the process that makes what is in them.
// Its guards may be broken on purpose, too.
func (r *run) startStores(ctx context.Context) error {
	at := &job.Stores{Dir: filepath.Join(r.config.Dir, "stores")}
	if err := os.Mkdir(at.Dir, 0o755); err != nil {
		return err
	}
	sockets := filepath.Dir(r.socket)
	at.HTTP, at.Memory = filepath.Join(sockets, "http"), filepath.Join(sockets, "memory")

	postgres, err := postgrestest.Start()
	if err != nil {
		return err
	}
	r.ends = append(r.ends, func() { postgres.Remove() })
	at.Postgres = postgres.DSN()
	mariadb, err := mariadbtest.Start()
	if err != nil {
		return err
	}
	r.ends = append(r.ends, func() { mariadb.Remove() })
	at.MariaDB = "root@unix(" + mariadb.Socket + ")/test"
	redis, stop, err := StartNodes(ctx, at.Dir, 1, Memory)
	if err != nil {
		return err
	}
	r.ends = append(r.ends, stop)
	at.Redis = redis[0].Addr

	etcd, err := etcdtest.Start()
	if err != nil {
		return err
	}
	r.ends = append(r.ends, func() { etcd.Remove() })
	at.Etcd = etcd.Endpoint()
	if at.S3, err = r.startS3(at.Dir); err != nil {
		return err
	}

	service := &client{slot: "service"}
	if err := service.spawn(r.config.Program, r.config.Dir,
		job.Job{Serve: true, Stores: at, Keys: r.keys()}); err != nil {
		return err
	}
	r.ends = append(r.ends, func() { service.process.kill() })
	r.stores = at
	return nil
}

// startS3 starts a store of objects.
func (r *run) startS3(dir string) (at job.S3, err error) {
	address, err := freeAddress()
	if err != nil {
		return at, err
	}
	gateway, err := versitytest.StartIn(filepath.Join(dir, "s3"), address)
	if err != nil {
		return at, err
	}
	r.ends = append(r.ends, gateway.Kill)
	return job.S3{URL: gateway.URL, Region: versitytest.Region, Key: versitytest.AccessKey,
		Secret: versitytest.Secret}, nil
}

// readStores records what is in the stores at the end.
func (r *run) readStores(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	all, err := stores.Open(*r.stores)
	if err != nil {
		return err
	}
	defer stores.Close(all)
	for _, s := range all {
		for _, key := range r.keys() {
			value, err := s.Get(ctx, key)
			twin, err2 := s.Twin(ctx, key)
			if err := errors.Join(err, err2); err != nil {
				return fmt.Errorf("%s: %w", s.Name, err)
			}
			r.log.Add(history.Record{Kind: history.Final, Name: s.Name, Key: key, Value: value,
				Twin: twin})
		}
	}
	return nil
}
