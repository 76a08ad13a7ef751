package look

// The colours of cells. Nothing is said by a colour alone.
const (
	bold   = "\x1b[1m"
	red    = "\x1b[31m"
	yellow = "\x1b[33m"
	normal = "\x1b[0m"
)

func colour(row []string, column int, by string) { row[column] = by + row[column] + normal }

// ColourHead colours the first row of a list.
func ColourHead(row []string) {
	for i := range row {
		colour(row, i, bold)
	}
}

// Colour colours the row of a key: what holdfast leaks would find in red, and what will end by
// itself in yellow.
func (k Key) Colour(row []string) {
	if len(k.Holders) == 0 {
		colour(row, holderColumn, yellow)
		return
	}
	last := k.Holders[len(k.Holders)-1]
	if len(k.Holders) == 1 && last.Life == Gone {
		colour(row, pidColumn, red)
	}
	if last.Endless {
		colour(row, leaseColumn, red)
	}
	if k.Renewed() == No {
		colour(row, renewedColumn, yellow)
	}
}
