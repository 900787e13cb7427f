import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

/**
 * Brings the row changes of a running server onto a topic of Kafka as Debezium's JSON, up to the row of the table that ends the log, and
 * counts them: DebeziumKafka HOST PORT USER PASSWORD END_TABLE BROKERS TOPIC WARM_UP_ROWS.
 *
 * <p>Debezium's engine and Kafka's own producer in one process, without Kafka Connect between. A first engine brings WARM_UP_ROWS rows onto
 * the topic "warm-up", for the JIT.
 */
final class DebeziumKafka {
    private final String topic;
    private final String endTopic;
    private final long mostRows;
    private final CountDownLatch ended = new CountDownLatch(1);
    private long rows;
    private Throwable failure;

    private DebeziumKafka(String topic, String endTable, long mostRows) {
        this.topic = topic;
        this.endTopic = "." + endTable;
        this.mostRows = mostRows;
    }

    public static void main(String[] arguments) throws Exception {
        long warmUpRows = Long.parseLong(arguments[7]);
        if (warmUpRows > 0) {
            new DebeziumKafka("warm-up", arguments[4], warmUpRows).run(arguments);
        }
        System.out.println("begin");
        System.out.println(new DebeziumKafka(arguments[6], arguments[4], Long.MAX_VALUE).run(arguments));
        System.exit(0); // threads of the engine's would wait for more of the log
    }

    private long run(String[] arguments) throws Exception {
        Properties settings = DebeziumRows.settings(arguments);
        settings.setProperty("converter.schemas.enable", "false");
        settings.setProperty("poll.interval.ms", "10");
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(producer(arguments[5]))) {
            DebeziumEngine<ChangeEvent<String, String>> engine = DebeziumEngine.create(Json.class)
                    .using(settings)
                    .using((success, message, error) -> end(success ? null : new IllegalStateException(message, error)))
                    .notifying((events, committer) -> {
                        send(events, producer);
                        committer.markBatchFinished();
                    })
                    .build();
            ExecutorService thread = Executors.newSingleThreadExecutor();
            thread.execute(engine);
            ended.await();
            producer.flush();
            if (failure != null) {
                failure.printStackTrace();
                System.exit(1);
            }
            long counted = rows;
            engine.close();
            thread.shutdown();
            return counted;
        }
    }

    private static Properties producer(String brokers) {
        Properties settings = new Properties();
        settings.setProperty("bootstrap.servers", brokers);
        settings.setProperty("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.setProperty("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.setProperty("acks", "all");
        settings.setProperty("compression.type", "lz4");
        settings.setProperty("linger.ms", "0");
        settings.setProperty("batch.size", "262144");
        return settings;
    }

    private void send(List<ChangeEvent<String, String>> events, KafkaProducer<String, String> producer) {
        for (ChangeEvent<String, String> event : events) {
            if (ended.getCount() == 0) {
                return;
            }
            if (rows >= mostRows || event.destination().endsWith(endTopic)) {
                end(null);
                return;
            }
            rows++;
            producer.send(new ProducerRecord<>(topic, event.key(), event.value()), (data, error) -> {
                if (error != null) {
                    end(error);
                }
            });
        }
    }

    private void end(Throwable cause) {
        if (ended.getCount() > 0) {
            failure = cause;
            ended.countDown();
        }
    }
}
