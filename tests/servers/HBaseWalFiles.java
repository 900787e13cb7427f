import java.io.*;
import java.util.*;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hbase.*;
import org.apache.hadoop.hbase.regionserver.MultiVersionConcurrencyControl;
import org.apache.hadoop.hbase.util.Bytes;
import org.apache.hadoop.hbase.wal.*;

/**
 * Files of HBase's log by HBase's own writer, and what its own reader finds in them.
 *
 * <p>write FILE PACKING ENTRIES CELLS WIDTH: PACKING plain, dictionaries, or dictionaries and an algorithm; WIDTH: of how many regions, rows,
 * qualifiers there are, so that more than a dictionary holds push each other out. read FILE: an entry a line. time FILE REPEATS: a line per round.
 */
public class HBaseWalFiles {
  public static void main(String[] arguments) throws Exception {
    BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
    for (String line; (line = commands.readLine()) != null; ) {
      String[] command = line.split(" ");
      switch (command[0]) {
        case "write" -> write(new Path(command[1]), command[2], Integer.parseInt(command[3]), Integer.parseInt(command[4]), Integer.parseInt(command[5]));
        case "read" -> read(new Path(command[1]), new Path(command[2]));
        case "time" -> time(new Path(command[1]), Integer.parseInt(command[2]));
        default -> throw new IllegalArgumentException(command[0]);
      }
      System.out.println("done");
    }
  }

  private static Configuration configuration(String packing) {
    Configuration conf = HBaseConfiguration.create();
    conf.set("fs.file.impl", "org.apache.hadoop.fs.RawLocalFileSystem");
    conf.setBoolean("hbase.regionserver.wal.enablecompression", !packing.equals("plain"));
    conf.setBoolean("hbase.regionserver.wal.tags.enablecompression", true);
    if (!packing.equals("plain") && !packing.equals("dictionaries")) {
      conf.setBoolean("hbase.regionserver.wal.value.enablecompression", true);
      conf.set("hbase.regionserver.wal.value.compression.type", packing);
    }
    return conf;
  }

  private static void write(Path file, String packing, int entries, int cells, int width) throws Exception {
    Configuration conf = configuration(packing);
    Random random = new Random(width);
    MultiVersionConcurrencyControl sequences = new MultiVersionConcurrencyControl();
    TreeMap<byte[], Integer> scopes = new TreeMap<>(Bytes.BYTES_COMPARATOR);
    scopes.put(Bytes.toBytes("f0"), 1);
    try (WALProvider.Writer writer = WALFactory.createWALWriter(file.getFileSystem(conf), file, conf)) {
      for (int number = 0; number < entries; number++) {
        WALEdit edit = new WALEdit();
        for (int cell = 0; cell < cells; cell++) {
          edit.add(cell(random, width));
        }
        int place = random.nextInt(width);
        TableName table = TableName.valueOf("t" + place % 50);
        byte[] region = Bytes.toBytes("region" + place);
        WALKeyImpl key = new WALKeyImpl(region, table, 1_700_000_000_000L + number, sequences, scopes);
        key.setWriteEntry(sequences.begin());
        writer.append(new WAL.Entry(key, edit));
        sequences.complete(key.getWriteEntry());
      }
      writer.sync(false);
    }
  }

  private static Cell cell(Random random, int width) {
    byte[] value = new byte[random.nextInt(10) == 0 ? 0 : random.nextInt(60)];
    random.nextBytes(value);
    if (random.nextInt(3) == 0) {
      Arrays.fill(value, (byte) 'v');
    }
    Tag[] tags = random.nextInt(3) > 0 ? new Tag[0] : new Tag[] {new ArrayBackedTag((byte) 8, Bytes.toBytes("tag" + random.nextInt(width)))};
    byte[] qualifier = random.nextInt(20) == 0 ? new byte[0] : Bytes.toBytes("q" + random.nextInt(Math.min(width, 400)));
    byte[] family = Bytes.toBytes("f" + random.nextInt(Math.min(width, 300)));
    return new KeyValue(Bytes.toBytes("row" + random.nextInt(width)), family, qualifier, random.nextLong() >>> 1, KeyValue.Type.Put, value, Arrays.asList(tags));
  }

  private static void read(Path file, Path into) throws Exception {
    Configuration conf = configuration("plain");
    FileSystem fs = file.getFileSystem(conf);
    try (WALStreamReader reader = WALFactory.createStreamReader(fs, file, conf);
        PrintStream out = new PrintStream(new BufferedOutputStream(new FileOutputStream(into.toUri().getPath())))) {
      for (WAL.Entry entry; (entry = reader.next()) != null; ) {
        StringBuilder line = new StringBuilder();
        line.append(reader.getPosition()).append(' ').append(Bytes.toString(entry.getKey().getEncodedRegionName())).append(' ');
        line.append(entry.getKey().getTableName()).append(' ').append(entry.getKey().getWriteTime());
        for (Cell cell : entry.getEdit().getCells()) {
          line.append(' ').append(Bytes.toHex(CellUtil.cloneRow(cell))).append(',').append(Bytes.toHex(CellUtil.cloneFamily(cell)));
          line.append(',').append(Bytes.toHex(CellUtil.cloneQualifier(cell))).append(',').append(cell.getTimestamp());
          line.append(',').append(Bytes.toHex(CellUtil.cloneValue(cell))).append(',');
          line.append(Bytes.toHex(cell.getTagsArray(), cell.getTagsOffset(), cell.getTagsLength()));
        }
        out.println(line);
      }
    }
  }

  private static void time(Path file, int repeats) throws Exception {
    Configuration conf = configuration("plain");
    FileSystem fs = file.getFileSystem(conf);
    java.lang.management.ThreadMXBean clock = java.lang.management.ManagementFactory.getThreadMXBean();
    for (int round = 0; round < repeats; round++) {
      long began = clock.getCurrentThreadCpuTime();
      long entries = 0;
      long cells = 0;
      long bytes = 0;
      try (WALStreamReader reader = WALFactory.createStreamReader(fs, file, conf)) {
        for (WAL.Entry entry; (entry = reader.next()) != null; entries++) {
          for (Cell cell : entry.getEdit().getCells()) {
            cells++;
            bytes += cell.getValueLength() + cell.getRowLength();
          }
        }
      }
      System.out.println(entries + " " + cells + " " + bytes + " " + (clock.getCurrentThreadCpuTime() - began));
    }
  }
}
