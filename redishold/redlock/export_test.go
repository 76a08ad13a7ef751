package redlock

// NamesOf returns how the nodes of a well-formed URL are called.
func NamesOf(url string) []string {
	a, err := parse(url)
	if err != nil {
		return nil
	}
	return a.names
}
