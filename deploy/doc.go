// Package deploy holds what operators install, in folders:
//
//	prometheus   recording rules and alerts; docs/alerts.md says what to do when an alert fires
//	grafana      a dashboard
//	systemd      units
//	packages     recipes of the packages for Debian, RPM and Homebrew
//
// The Containerfile makes the image (make image). The package's Go code is only tests, which try
// these files. Package workload makes the traffic that rules and dashboard are tried on.
package deploy
