import com.github.shyiko.mysql.binlog.BinaryLogFileReader;
import com.github.shyiko.mysql.binlog.event.DeleteRowsEventData;
import com.github.shyiko.mysql.binlog.event.Event;
import com.github.shyiko.mysql.binlog.event.EventData;
import com.github.shyiko.mysql.binlog.event.TransactionPayloadEventData;
import com.github.shyiko.mysql.binlog.event.UpdateRowsEventData;
import com.github.shyiko.mysql.binlog.event.WriteRowsEventData;
import java.io.File;
import java.io.IOException;

/**
 * Counts the row changes of a binlog file with mysql-binlog-connector-java: ConnectorRows FILE.
 *
 * <p>The file is read twice and the first time is start-up: capture runs for weeks, so the code counts as the JIT leaves it.
 */
final class ConnectorRows {
    public static void main(String[] arguments) throws IOException {
        File log = new File(arguments[0]);
        rowsIn(log);
        System.out.println("begin");
        System.out.println(rowsIn(log));
    }

    private static long rowsIn(File log) throws IOException {
        long rows = 0;
        try (BinaryLogFileReader reader = new BinaryLogFileReader(log)) {
            for (Event event = reader.readEvent(); event != null; event = reader.readEvent()) {
                rows += rowsOf(event.getData());
            }
        }
        return rows;
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
