// Package deploy holds files for operators: recording rules and alerts for Prometheus in the folder
// prometheus, a dashboard for Grafana in the folder grafana, and units of systemd in the folder
// systemd. Its Go code is only tests, which try these files on a real Prometheus. Package trouble
// is their workload. docs/alerts.md says what to do when an alert fires.
package deploy
