//go:build !race

package sched_test

const raced = false
