package backendurl

// Forms returns the form of an address of each scheme, in alphabetical order.
func Forms() []string { return forms() }
