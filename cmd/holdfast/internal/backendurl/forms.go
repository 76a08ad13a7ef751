package backendurl

// Forms are how addresses look, one for each scheme, in alphabetical order.
func Forms() []string { return forms() }
