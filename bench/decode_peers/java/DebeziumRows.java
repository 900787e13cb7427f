import io.debezium.embedded.Connect;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.RecordChangeEvent;
import io.debezium.engine.format.ChangeEventFormat;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.source.SourceRecord;

/**
 * Counts the row changes that Debezium's engine hands out of a running server's binlog, from its first file to the row of the table
 * that ends it: DebeziumRows HOST PORT USER PASSWORD END_TABLE.
 *
 * <p>Records stay Connect structs (no JSON), nothing is kept (offsets and schema history in memory), and no table is read: the
 * schema comes from the DDL in the log. A first engine reads the log's beginning as start-up: capture runs for weeks, so the code counts
 * as the JIT leaves it.
 */
final class DebeziumRows {
    private static final long WARM_UP_ROWS = 400_000;

    private final String endTable;
    private final long mostRows;
    private final CountDownLatch ended = new CountDownLatch(1);
    private long rows;
    private Throwable failure;

    private DebeziumRows(String endTable, long mostRows) {
        this.endTable = endTable;
        this.mostRows = mostRows;
    }

    public static void main(String[] arguments) throws Exception {
        new DebeziumRows(arguments[4], WARM_UP_ROWS).run(settings(arguments));
        System.out.println("begin");
        System.out.println(new DebeziumRows(arguments[4], Long.MAX_VALUE).run(settings(arguments)));
        System.exit(0); // threads of the engine's would wait for more of the log
    }

    /** The rows up to the end of the log, or some more than {@code mostRows}. */
    private long run(Properties settings) throws Exception {
        DebeziumEngine<RecordChangeEvent<SourceRecord>> engine = DebeziumEngine.create(ChangeEventFormat.of(Connect.class))
                .using(settings)
                .using((success, message, error) -> end(success ? null : new IllegalStateException(message, error)))
                .notifying((records, committer) -> {
                    count(records);
                    committer.markBatchFinished();
                })
                .build();
        ExecutorService thread = Executors.newSingleThreadExecutor();
        thread.execute(engine);
        ended.await();
        if (failure != null) {
            failure.printStackTrace();
            System.exit(1);
        }
        long counted = rows;
        engine.close();
        thread.shutdown();
        return counted;
    }

    static Properties settings(String[] arguments) {
        Properties settings = new Properties();
        settings.setProperty("name", "bench");
        settings.setProperty("connector.class", "io.debezium.connector.mysql.MySqlConnector");
        settings.setProperty("offset.storage", "org.apache.kafka.connect.storage.MemoryOffsetBackingStore");
        settings.setProperty("schema.history.internal", "io.debezium.relational.history.MemorySchemaHistory");
        settings.setProperty("topic.prefix", "bench");
        settings.setProperty("snapshot.mode", "configuration_based");
        settings.setProperty("snapshot.mode.configuration.based.snapshot.data", "false");
        settings.setProperty("snapshot.mode.configuration.based.snapshot.schema", "false");
        settings.setProperty("snapshot.mode.configuration.based.start.stream", "true");
        settings.setProperty("include.schema.changes", "false");
        settings.setProperty("tombstones.on.delete", "false");
        settings.setProperty("database.hostname", arguments[0]);
        settings.setProperty("database.port", arguments[1]);
        settings.setProperty("database.user", arguments[2]);
        settings.setProperty("database.password", arguments[3]);
        settings.setProperty("database.server.id", "4711");
        settings.setProperty("database.ssl.mode", "disabled");
        settings.setProperty("driver.allowPublicKeyRetrieval", "true");
        return settings;
    }

    private void count(List<RecordChangeEvent<SourceRecord>> records) {
        for (RecordChangeEvent<SourceRecord> event : records) {
            Struct change = (Struct) event.record().value();
            rows++;
            if (rows >= mostRows || change.getStruct("source").getString("table").equals(endTable)) {
                end(null);
                return;
            }
        }
    }

    private void end(Throwable cause) {
        if (ended.getCount() > 0) {
            failure = cause;
            ended.countDown();
        }
    }
}
