package filehold_test

const oneClock = true
