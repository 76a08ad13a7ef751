//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filehold

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
)

// Everything that is stored is sealed: a header with length, sequence number and checksum, then the payload. A write that
// was cut short is thereby told from one that was not. Whoever rewrites a file has two places for sealed records in it and
// writes to the one that does not hold the record in force; the older record stays in force until the newer one is whole.

const sealSize = 20

const sealMagic = 0x31666468 // "hdf1" in little endian

var (
	// errShort: the bytes end before the record does.
	errShort = errors.New("record cut short")

	// errDamaged: the bytes are no record, and not the beginning of one.
	errDamaged = errors.New("record damaged")
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// seal appends the sealed payload to b.
func seal(b []byte, sequence uint64, payload []byte) []byte {
	start := len(b)
	b = binary.LittleEndian.AppendUint32(b, sealMagic)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(payload)))
	b = binary.LittleEndian.AppendUint64(b, sequence)
	b = binary.LittleEndian.AppendUint32(b, 0)
	b = append(b, payload...)
	binary.LittleEndian.PutUint32(b[start+16:], sealSum(b[start:]))
	return b
}

// sealSum is the checksum over a record, without its checksum.
func sealSum(b []byte) uint32 {
	return crc32.Update(crc32.Checksum(b[:16], castagnoli), castagnoli, b[sealSize:])
}

// unseal returns the sequence number and the payload of the record that b begins with. It fails with errShort
// or errDamaged. size is the size of the whole record, or 0 if b is too short to tell.
func unseal(b []byte) (sequence uint64, payload []byte, size int, err error) {
	if len(b) < sealSize {
		return 0, nil, 0, errShort
	}
	if binary.LittleEndian.Uint32(b) != sealMagic {
		return 0, nil, 0, errDamaged
	}
	// Limited so that a damaged length can neither overflow nor ask for all memory.
	length := binary.LittleEndian.Uint32(b[4:])
	if length > maxPayload {
		return 0, nil, 0, errDamaged
	}
	size = sealSize + int(length)
	if len(b) < size {
		return 0, nil, size, errShort
	}
	b = b[:size]
	if binary.LittleEndian.Uint32(b[16:]) != sealSum(b) {
		return 0, nil, size, errDamaged
	}
	return binary.LittleEndian.Uint64(b[8:]), b[sealSize:], size, nil
}

// maxPayload is far more than the largest queue that a machine can have.
const maxPayload = 1 << 28
