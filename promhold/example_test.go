package promhold_test

import (
	"context"
	"fmt"
	"log"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memhold"
	"github.com/holdfast-go/holdfast/promhold"
)

func Example() {
	metrics := promhold.New(promhold.WithResource(promhold.UpTo("/")))
	registry := prometheus.NewRegistry() // or prometheus.DefaultRegisterer
	registry.MustRegister(metrics)

	backend := memhold.New()
	defer backend.Close()
	locker, err := holdfast.New(backend, holdfast.WithHooks(metrics.Hooks(0)))
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()
	defer metrics.Follow("invoices", locker)()

	err = locker.Do(context.Background(), "invoice/42",
		func(ctx context.Context, lock *holdfast.Lock) error {
			families, err := registry.Gather() // promhttp.Handler does this for a scrape
			for _, f := range families {
				if f.GetName() == "holdfast_held" {
					fmt.Println(f.GetName(), f.Metric[0].GetGauge().GetValue())
				}
			}
			return err
		})
	if err != nil {
		log.Fatal(err)
	}
	// Output: holdfast_held 1
}
