import java.io.*;
import java.nio.file.*;
import java.util.*;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.*;
import org.apache.hadoop.hbase.client.*;
import org.apache.hadoop.hbase.util.Bytes;

/** What tests ask of an HBase that Thrift does not have: a command a line in, "done" or what went wrong out. */
public class HBaseConsole {
  private static final byte[][] FAMILIES = {Bytes.toBytes("a"), Bytes.toBytes("b")};
  private static final int ROWS = 200;
  private final Connection connection;
  private final Admin admin;

  private HBaseConsole(Connection connection) throws IOException {
    this.connection = connection;
    this.admin = connection.getAdmin();
  }

  public static void main(String[] arguments) throws Exception {
    Configuration conf = HBaseConfiguration.create();
    conf.setInt("hbase.client.retries.number", 1000); // a server that was killed is waited out
    BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
    try (Connection connection = ConnectionFactory.createConnection(conf)) {
      HBaseConsole console = new HBaseConsole(connection);
      System.out.println("ready");
      for (String line; (line = commands.readLine()) != null; ) {
        try {
          console.run(line.split(" "));
          System.out.println("done");
        } catch (Exception problem) {
          System.out.println("failed: " + problem.toString().replace('\n', ' '));
        }
      }
    }
  }

  private void run(String[] command) throws Exception {
    TableName table = command.length > 1 ? TableName.valueOf(command[1]) : null;
    switch (command[0]) {
      case "create" -> create(table);
      case "drop" -> { admin.disableTable(table); admin.deleteTable(table); }
      case "write" -> write(table, Long.parseLong(command[2]), Integer.parseInt(command[3]));
      case "flush" -> admin.flush(table);
      case "roll" -> { for (ServerName server : admin.getRegionServers()) admin.rollWALWriter(server); }
      case "split" -> split(table, Long.parseLong(command[2]));
      case "merge" -> merge(table, Long.parseLong(command[2]));
      case "move" -> move(table, Long.parseLong(command[2]));
      case "scan" -> scan(table, Path.of(command[2]));
      default -> throw new IllegalArgumentException(command[0]);
    }
  }

  /** No version is ever given up, and nothing that was deleted is removed for good: what a scan shows is what the log says. */
  private void create(TableName name) throws IOException {
    try {
      admin.createNamespace(NamespaceDescriptor.create(name.getNamespaceAsString()).build());
    } catch (NamespaceExistException exists) {
      // as wanted
    }
    TableDescriptorBuilder table = TableDescriptorBuilder.newBuilder(name).setCompactionEnabled(false);
    for (byte[] family : FAMILIES) {
      table.setColumnFamily(ColumnFamilyDescriptorBuilder.newBuilder(family).setMaxVersions(Integer.MAX_VALUE).build());
    }
    admin.createTable(table.build(), new byte[][] {row(70), row(140)});
  }

  private static byte[] row(int number) {
    return Bytes.toBytes(String.format("r%03d", number));
  }

  private void write(TableName name, long seed, int count) throws Exception {
    Random random = new Random(seed);
    try (Table table = connection.getTable(name)) {
      for (int done = 0; done < count; done++) {
        byte[] row = row(random.nextInt(ROWS));
        switch (random.nextInt(8)) {
          case 0 -> table.delete(deletion(random, row));
          case 1 -> table.increment(new Increment(row).addColumn(FAMILIES[1], Bytes.toBytes("count"), 1 + random.nextInt(9)));
          case 2 -> table.append(new Append(row).addColumn(FAMILIES[0], Bytes.toBytes("text"), Bytes.toBytes("+" + done)));
          case 3 -> table.mutateRow(RowMutations.of(List.of(put(random, row), new Delete(row).addColumns(FAMILIES[0], qualifier(random)))));
          case 4, 5 -> batch(table, random);
          default -> table.put(put(random, row));
        }
      }
    }
  }

  /** Several rows, and several changes of some, over all regions at once. */
  private static void batch(Table table, Random random) throws Exception {
    List<Row> changes = new ArrayList<>();
    for (int number = 2 + random.nextInt(12); number > 0; number--) {
      byte[] row = row(random.nextInt(ROWS));
      changes.add(random.nextInt(4) == 0 ? deletion(random, row) : put(random, row));
    }
    table.batch(changes, new Object[changes.size()]);
  }

  private static byte[] qualifier(Random random) {
    return random.nextInt(20) == 0 ? new byte[] {(byte) 0xff, 0} : Bytes.toBytes("q" + random.nextInt(4));
  }

  private static Put put(Random random, byte[] row) throws IOException {
    Put put = new Put(row);
    for (int cells = 1 + random.nextInt(4); cells > 0; cells--) {
      byte[] value = new byte[random.nextInt(random.nextInt(30) == 0 ? 20_000 : 40)];
      random.nextBytes(value);
      put.addColumn(FAMILIES[random.nextInt(2)], qualifier(random), value);
    }
    if (random.nextInt(5) == 0) {
      put.setTTL(86_400_000L);
    }
    return put;
  }

  private static Delete deletion(Random random, byte[] row) throws IOException {
    Delete delete = new Delete(row);
    byte[] family = FAMILIES[random.nextInt(2)];
    return switch (random.nextInt(5)) {
      case 0 -> delete;
      case 1 -> delete.addFamily(family);
      case 2 -> delete.addColumns(family, qualifier(random));
      case 3 -> delete.addFamilyVersion(family, System.currentTimeMillis() - random.nextInt(50));
      default -> delete.addColumn(family, qualifier(random));
    };
  }

  private List<RegionInfo> regions(TableName name) throws IOException {
    List<RegionInfo> regions = new ArrayList<>(admin.getRegions(name));
    regions.sort(RegionInfo.COMPARATOR);
    return regions;
  }

  private void split(TableName name, long seed) throws Exception {
    List<RegionInfo> regions = regions(name);
    Random random = new Random(seed);
    RegionInfo region = regions.get(random.nextInt(regions.size()));
    for (int number = random.nextInt(ROWS), tried = 0; tried < ROWS; tried++, number = (number + 1) % ROWS) {
      if (region.containsRow(row(number)) && !Bytes.equals(region.getStartKey(), row(number))) {
        admin.splitRegionAsync(region.getRegionName(), row(number)).get();
        return;
      }
    }
  }

  private void merge(TableName name, long seed) throws Exception {
    List<RegionInfo> regions = regions(name);
    if (regions.size() > 1) {
      int first = new Random(seed).nextInt(regions.size() - 1);
      byte[][] two = {regions.get(first).getRegionName(), regions.get(first + 1).getRegionName()};
      admin.mergeRegionsAsync(two, true).get();
    }
  }

  private void move(TableName name, long seed) throws Exception {
    List<RegionInfo> regions = regions(name);
    List<ServerName> servers = new ArrayList<>(admin.getRegionServers());
    Random random = new Random(seed);
    admin.move(regions.get(random.nextInt(regions.size())).getEncodedNameAsBytes(), servers.get(random.nextInt(servers.size())));
  }

  private void scan(TableName name, Path file) throws IOException {
    try (Table table = connection.getTable(name);
        ResultScanner rows = table.getScanner(new Scan().readAllVersions());
        PrintWriter out = new PrintWriter(Files.newBufferedWriter(file))) {
      for (Result row : rows) {
        for (Cell cell : row.rawCells()) {
          out.println(String.join(" ",
              Bytes.toHex(CellUtil.cloneRow(cell)), Bytes.toHex(CellUtil.cloneFamily(cell)), "q" + Bytes.toHex(CellUtil.cloneQualifier(cell)),
              Long.toString(cell.getTimestamp()), "v" + Bytes.toHex(CellUtil.cloneValue(cell))));
        }
      }
    }
  }
}
