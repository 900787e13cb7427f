// Counts the row changes of a binlog file with go-mysql, every row decoded: go-mysql-rows FILE.
package main

import (
	"fmt"
	"os"

	"github.com/go-mysql-org/go-mysql/replication"
)

func main() {
	if len(os.Args) != 2 {
		fail("usage: go-mysql-rows FILE")
	}
	rows := 0
	count := func(event *replication.BinlogEvent) error {
		rows += rowsOf(event)
		return nil
	}
	fmt.Println("begin")
	if err := replication.NewBinlogParser().ParseFile(os.Args[1], 0, count); err != nil {
		fail(err.Error())
	}
	fmt.Println(rows)
}

func rowsOf(event *replication.BinlogEvent) int {
	switch body := event.Event.(type) {
	case *replication.RowsEvent:
		switch event.Header.EventType {
		// Both images of an updated row are rows to go-mysql.
		case replication.UPDATE_ROWS_EVENTv1, replication.UPDATE_ROWS_EVENTv2, replication.PARTIAL_UPDATE_ROWS_EVENT:
			return len(body.Rows) / 2
		default:
			return len(body.Rows)
		}
	case *replication.TransactionPayloadEvent:
		rows := 0
		for _, inner := range body.Events {
			rows += rowsOf(inner)
		}
		return rows
	default:
		return 0
	}
}

func fail(reason string) {
	fmt.Fprintln(os.Stderr, reason)
	os.Exit(1)
}
