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

// dispensable are the columns that give way where there is no room, the first of them first. What
// is held by whom, for how long still, and how many wait is left.
var dispensable = []int{pidColumn, 2, 4} // 2 is the host, 4 since when

// Columns returns which columns of rows under Head or HeadAgain have room beside each other, and
// whether these have. Of a cell no more than most says counts. The column stays is left.
func Columns(rows [][]string, width, stays int, most func(column int) int) (left []int, fit bool) {
	widths := widthsOf(rows, most)
	for i := range widths {
		left = append(left, i)
	}
	for _, gives := range dispensable {
		if lineWidth(widths, left) <= width {
			break
		}
		if gives != stays {
			left = slices.DeleteFunc(left, func(i int) bool { return i == gives })
		}
	}
	return left, lineWidth(widths, left) <= width
}

// Only returns rows with these columns only.
func Only(rows [][]string, left []int) (only [][]string) {
	for _, row := range rows {
		var cells []string
		for _, i := range left {
			cells = append(cells, row[i])
		}
		only = append(only, cells)
	}
	return only
}

// lineWidth is how wide a row of a table with these columns is.
func lineWidth(widths, left []int) (width int) {
	for _, i := range left {
		width += widths[i] + gap
	}
	return width - gap
}

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
