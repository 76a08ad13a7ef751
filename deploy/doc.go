// Package deploy is what operators take along: rules and alerts for Prometheus in the folder
// prometheus, and a dashboard for Grafana in the folder grafana. It has only tests, which try all
// of it on real servers. docs/alerts.md says what to do when an alert fires.
package deploy
