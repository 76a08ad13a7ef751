// Package cost measures what a lock costs on a backend, beside a bare request to it.
package cost
