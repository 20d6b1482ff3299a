import java.io.BufferedWriter;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.List;
import java.util.Map;
import java.util.SortedMap;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.mapdb.DB;
import org.mapdb.DBMaker;
import org.mapdb.Serializer;

/**
 * Writes the records of an Ant Media Server that keeps them in MapDB as lines of JSON, for {@code millstream import --records}.
 *
 * <p>Of each {@code NAME.db} in the first folder it makes {@code NAME.jsonl} in the second: an object with {@code map}, {@code key} and
 * {@code value} for each entry. The database is copied first, so the old one is neither opened nor locked. It needs Java 11 and the
 * libraries of the old server: {@code java -cp "/usr/local/antmedia/lib/*" MapDbExport.java /usr/local/antmedia EXPORT}.
 */
public final class MapDbExport {
    private MapDbExport() {}

    public static void main(String[] args) throws IOException {
        if (args.length != 2) {
            System.err.println("usage: MapDbExport FOLDER-OF-THE-SERVER FOLDER-OF-THE-EXPORT");
            System.exit(2);
        }
        Path to = Path.of(args[1]);
        Files.createDirectories(to);
        List<Path> files;
        try (Stream<Path> all = Files.list(Path.of(args[0]))) {
            files = all.filter(file -> file.toString().endsWith(".db") && Files.isRegularFile(file)).sorted().collect(Collectors.toList());
        }
        boolean whole = true;
        for (Path file : files) {
            String name = file.getFileName().toString();
            Path out = to.resolve(name.substring(0, name.length() - ".db".length()) + ".jsonl");
            whole &= export(file, out);
        }
        System.exit(whole ? 0 : 1);
    }

    /** Exports one file. False: not all of it could be read. */
    private static boolean export(Path file, Path out) throws IOException {
        Path copy = Files.createTempFile("mapdb-export", ".db");
        Path partial = out.resolveSibling(out.getFileName() + ".partial");
        long entries = 0;
        boolean whole = true;
        try {
            Files.copy(file, copy, StandardCopyOption.REPLACE_EXISTING);
            try (BufferedWriter writer = Files.newBufferedWriter(partial, StandardCharsets.UTF_8)) {
                // As the server opens it; it is often not closed in order.
                DB db = DBMaker.fileDB(copy.toFile()).checksumHeaderBypass().make();
                try {
                    SortedMap<String, String> catalog = db.nameCatalogLoad();
                    for (String name : db.getAllNames()) {
                        try {
                            entries += write(name, open(db, name, catalog.get(name + "#type")), writer);
                        } catch (RuntimeException error) {
                            System.err.println(file + ": " + name + ": not whole: " + error);
                            whole = false;
                        }
                    }
                } finally {
                    db.close();
                }
            }
            Files.move(partial, out, StandardCopyOption.REPLACE_EXISTING);
        } catch (RuntimeException error) {
            System.err.println(file + ": cannot be read: " + error);
            whole = false;
        } finally {
            Files.deleteIfExists(copy);
            Files.deleteIfExists(partial);
        }
        System.err.println(file + ": " + entries + " entries");
        return whole;
    }

    private static Map<String, String> open(DB db, String name, String type) {
        if ("TreeMap".equals(type)) {
            return db.treeMap(name, Serializer.STRING, Serializer.STRING).open();
        }
        if ("HashMap".equals(type)) {
            return db.hashMap(name, Serializer.STRING, Serializer.STRING).open();
        }
        throw new IllegalStateException("is a " + type + ", which the server has not made");
    }

    private static long write(String name, Map<String, String> map, BufferedWriter writer) throws IOException {
        long entries = 0;
        for (Map.Entry<String, String> entry : map.entrySet()) {
            StringBuilder line = new StringBuilder("{\"map\":");
            quote(line, name);
            line.append(",\"key\":");
            quote(line, entry.getKey());
            line.append(",\"value\":");
            quote(line, entry.getValue());
            writer.write(line.append("}\n").toString());
            entries++;
        }
        return entries;
    }

    private static void quote(StringBuilder out, String text) {
        out.append('"');
        for (int at = 0; at < text.length(); at++) {
            char c = text.charAt(at);
            boolean lone = Character.isSurrogate(c) && !(Character.isHighSurrogate(c) && at + 1 < text.length()
                    && Character.isLowSurrogate(text.charAt(at + 1)))
                    && !(Character.isLowSurrogate(c) && at > 0 && Character.isHighSurrogate(text.charAt(at - 1)));
            if (c == '"' || c == '\\') {
                out.append('\\').append(c);
            } else if (c < ' ' || c == 0x2028 || c == 0x2029) {
                out.append(String.format("\\u%04x", (int) c));
            } else if (lone) {
                out.append('\ufffd');
            } else {
                out.append(c);
            }
        }
        out.append('"');
    }
}
