//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filehold

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
)

// A record is stored sealed: a header with checksum, sequence number and length, then the payload.
// The seal tells a whole write from one that was cut short.

const sealSize = 20

const sealMagic = 0x32666468 // "hdf2" in little endian

var (
	// errShort: the bytes end before the record does.
	errShort = errors.New("record cut short")

	// errDamaged: the bytes are no record, and not the beginning of one.
	errDamaged = errors.New("record damaged")
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// seal returns the sealed payload.
func seal(sequence uint64, payload []byte) []byte {
	b := binary.LittleEndian.AppendUint32(nil, sealMagic)
	b = append(b, make([]byte, 4)...)
	b = binary.LittleEndian.AppendUint64(b, sequence)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(payload)))
	b = append(b, payload...)
	binary.LittleEndian.PutUint32(b[4:], crc32.Checksum(b[8:], castagnoli))
	return b
}

// unseal returns the sequence number and the payload of the record that b begins with. It fails
// with errShort or errDamaged.
func unseal(b []byte) (sequence uint64, payload []byte, err error) {
	if len(b) < sealSize {
		return 0, nil, errShort
	}
	if binary.LittleEndian.Uint32(b) != sealMagic {
		return 0, nil, errDamaged
	}
	length := binary.LittleEndian.Uint32(b[16:])
	if uint64(length) > uint64(len(b)-sealSize) {
		return 0, nil, errShort
	}
	b = b[:sealSize+int(length)]
	if binary.LittleEndian.Uint32(b[4:]) != crc32.Checksum(b[8:], castagnoli) {
		return 0, nil, errDamaged
	}
	return binary.LittleEndian.Uint64(b[8:]), b[sealSize:], nil
}
