package otelhold_test

import (
	"context"
	"fmt"
	"log"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memhold"
	"github.com/holdfast-go/holdfast/otelhold"
)

func Example() {
	reader := metric.NewManualReader() // in a program, one that exports
	telemetry, err := otelhold.New(otelhold.WithResource(otelhold.UpTo("/")),
		otelhold.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(reader))))
	if err != nil {
		log.Fatal(err)
	}
	defer telemetry.Close()

	backend := memhold.New()
	defer backend.Close()
	locker, err := holdfast.New(backend, holdfast.WithHooks(telemetry.Hooks(0)))
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()
	defer telemetry.Follow("invoices", locker)()

	err = locker.Do(context.Background(), "invoice/42",
		func(ctx context.Context, lock *holdfast.Lock) error {
			var all metricdata.ResourceMetrics
			err := reader.Collect(ctx, &all)
			for _, m := range all.ScopeMetrics[0].Metrics {
				if m.Name == "holdfast.held" {
					fmt.Println(m.Name, m.Data.(metricdata.Sum[int64]).DataPoints[0].Value)
				}
			}
			return err
		})
	if err != nil {
		log.Fatal(err)
	}
	// Output: holdfast.held 1
}
