//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/go-logr/logr"
	"go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

// campaignClientGo is a candidate of client-go's leaderelection. Its times have the ratios of its
// defaults: 15 s, 10 s and 2 s.
func campaignClientGo(ctx context.Context, address string, ttl time.Duration, release bool,
	resign <-chan struct{}) error {
	client, err := dialEtcd(address)
	if err != nil {
		return err
	}
	defer client.Close()
	quiet := klog.NewContext(context.Background(), logr.Discard())
	for ctx.Err() == nil {
		run, stop := context.WithCancel(quiet)
		leading, done := context.WithCancel(ctx) // it ends before the elector releases
		go func() {
			select {
			case <-resign:
				done()
			case <-leading.Done():
			}
		}()
		var elector *leaderelection.LeaderElector
		elector, err = leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: &etcdRecord{client: client}, LeaseDuration: ttl, RenewDeadline: ttl * 10 / 15,
			RetryPeriod: ttl * 2 / 15, ReleaseOnCancel: release,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(term context.Context) {
					both, cancel := context.WithCancel(leading)
					defer cancel()
					defer context.AfterFunc(term, cancel)()
					act(both, elector.IsLeader)
					stop()
				},
				OnStoppedLeading: func() {},
			},
		})
		if err != nil {
			stop()
			done()
			return err
		}
		unhook := context.AfterFunc(ctx, func() {
			if !elector.IsLeader() { // else the act ends first
				stop()
			}
		})
		elector.Run(run)
		unhook()
		stop()
		done()
		time.Sleep(10 * time.Millisecond)
	}
	return nil
}

// etcdRecord is the record of an election as a value in etcd. It is written as an API server writes
// a Lease: only if nobody has written it since it was read.
type etcdRecord struct {
	client   *clientv3.Client
	revision int64 // the last one that was read or written
}

var errConflict = errors.New("another has written")

func (r *etcdRecord) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	answer, err := r.client.Get(ctx, key)
	if err != nil {
		return nil, nil, err
	}
	if len(answer.Kvs) == 0 {
		return nil, nil, apierrors.NewNotFound(schema.GroupResource{Resource: "leases"}, key)
	}
	r.revision = answer.Kvs[0].ModRevision
	record := &resourcelock.LeaderElectionRecord{}
	raw := answer.Kvs[0].Value
	return record, raw, json.Unmarshal(raw, record)
}

func (r *etcdRecord) Create(ctx context.Context, l resourcelock.LeaderElectionRecord) error {
	return r.write(ctx, 0, l)
}

func (r *etcdRecord) Update(ctx context.Context, l resourcelock.LeaderElectionRecord) error {
	return r.write(ctx, r.revision, l)
}

func (r *etcdRecord) write(ctx context.Context, was int64,
	l resourcelock.LeaderElectionRecord) error {
	raw, err := json.Marshal(l)
	if err != nil {
		return err
	}
	answer, err := r.client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", was)).
		Then(clientv3.OpPut(key, string(raw))).Commit()
	if err != nil {
		return err
	}
	if !answer.Succeeded {
		return errConflict
	}
	r.revision = answer.Header.Revision
	return nil
}

func (r *etcdRecord) RecordEvent(string) {}
func (r *etcdRecord) Identity() string   { return fmt.Sprint(os.Getpid()) }
func (r *etcdRecord) Describe() string   { return key }
