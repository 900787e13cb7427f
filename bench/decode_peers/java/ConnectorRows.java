import com.github.shyiko.mysql.binlog.BinaryLogFileReader;
import com.github.shyiko.mysql.binlog.event.DeleteRowsEventData;
import com.github.shyiko.mysql.binlog.event.Event;
import com.github.shyiko.mysql.binlog.event.EventData;
import com.github.shyiko.mysql.binlog.event.TransactionPayloadEventData;
import com.github.shyiko.mysql.binlog.event.UpdateRowsEventData;
import com.github.shyiko.mysql.binlog.event.WriteRowsEventData;
import java.io.File;
import java.io.IOException;

/** Counts the row changes of a binlog file with mysql-binlog-connector-java: ConnectorRows FILE. */
final class ConnectorRows {
    public static void main(String[] arguments) throws IOException {
        long rows = 0;
        System.out.println("begin");
        try (BinaryLogFileReader reader = new BinaryLogFileReader(new File(arguments[0]))) {
            for (Event event = reader.readEvent(); event != null; event = reader.readEvent()) {
                rows += rowsOf(event.getData());
            }
        }
        System.out.println(rows);
    }

    private static long rowsOf(EventData data) {
        if (data instanceof WriteRowsEventData) {
            return ((WriteRowsEventData) data).getRows().size();
        }
        if (data instanceof UpdateRowsEventData) {
            return ((UpdateRowsEventData) data).getRows().size();
        }
        if (data instanceof DeleteRowsEventData) {
            return ((DeleteRowsEventData) data).getRows().size();
        }
        if (data instanceof TransactionPayloadEventData) {
            return ((TransactionPayloadEventData) data).getUncompressedEvents().stream().mapToLong(inner -> rowsOf(inner.getData())).sum();
        }
        return 0;
    }
}
