package look

import (
	"fmt"
	"slices"
	"strconv"
)

// Head is the first row of the list.
var Head = []string{"NAME", "HOLDER", "HOST", "PID", "FOR", "LEASE", "WAITING"}

// HeadAgain is the first row of the list of those that looked again.
var HeadAgain = slices.Insert(slices.Clone(Head), renewedColumn, "RENEWED")

// The columns that colours are for.
const (
	holderColumn  = 1
	pidColumn     = 3
	leaseColumn   = 5
	renewedColumn = 6
)

// RowAgain describes the key in one row, under HeadAgain.
func (k Key) RowAgain(ages Ages) []string {
	cell := unknown
	if renewed := k.Renewed(); renewed != NotKnown {
		cell = string(renewed)
	}
	return slices.Insert(k.Row(ages), renewedColumn, cell)
}

// unknown stands for what is not known.
const unknown = "-"

// Row describes the key in one row of the list, under Head, at the time now of this machine.
func (k Key) Row(ages Ages) []string {
	row := []string{k.Name.String(), unknown, unknown, unknown, unknown, unknown,
		strconv.Itoa(len(k.Waiters))}
	switch len(k.Holders) {
	case 0:
		row[1] = "nobody"
	case 1:
		p := k.Holders[0]
		row[1] = holderCell(p, k.Shared)
		row[4], row[5] = ages.of(p), leaseCell(p)
		if !p.Foreign() {
			row[2], row[3] = Shown(p.Host), strconv.Itoa(p.PID)
		}
		if p.Life == Gone {
			row[3] += " (gone)"
		}
	default:
		last := k.Holders[len(k.Holders)-1]
		row[1] = fmt.Sprintf("%d share it", len(k.Holders))
		row[5] = leaseCell(last)
	}
	return row
}

func holderCell(p Party, shared bool) string {
	text := unknown
	switch {
	case p.Foreign():
		text = foreign(p.Value)
	case p.Label != "":
		text = Shown(p.Label)
	}
	if shared {
		text += " (shares)"
	}
	return text
}

func leaseCell(p Party) string {
	switch {
	case p.Endless:
		return "no end"
	case p.Lease <= 0:
		return unknown
	}
	return duration(p.Lease)
}
