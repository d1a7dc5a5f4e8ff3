import java.nio.file.*;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.table.api.*;

/** Runs the statements of a file in a cluster within this process, until the last ends. */
public class RunSql {
    public static void main(String[] words) throws Exception {
        Configuration settings = new Configuration();
        for (int at = 1; at < words.length; at++) {
            String[] pair = words[at].split("=", 2);
            settings.setString(pair[0], pair[1]);
        }
        TableEnvironment tables = TableEnvironment.create(
            EnvironmentSettings.newInstance().inStreamingMode().withConfiguration(settings).build());
        TableResult last = null;
        for (String statement : Files.readString(Path.of(words[0])).split(";\\s*\n")) {
            if (!statement.isBlank()) last = tables.executeSql(statement);
        }
        last.await();
    }
}
