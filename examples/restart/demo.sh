#!/usr/bin/env bash
# A job that follows a directory is killed twice, and goes on: every click is counted once. Takes 12 seconds.
set -eu
millstream=$(realpath "${1:-target/release/millstream}")
folder=$(mktemp -d)
trap 'kill -9 $job $writer 2>/dev/null || true; rm -rf "$folder"' EXIT
cp "$(dirname "$0")/job.sql" "$folder"
cd "$folder"
mkdir in

write() {
    for file in 1 2 3 4 5 6 7 8; do
        echo "ts,page" >"in/.$file"
        mv "in/.$file" "in/$file.csv"
        for tenth in 0 1 2 3 4 5 6 7 8 9; do
            for click in $(seq 1 100); do
                printf '2024-01-01 00:00:%02d.%d%02d,%d\n' "$file" "$tenth" $((click - 1)) $((click % 10))
            done >>"in/$file.csv"
            sleep 0.1
        done
    done
}
write &
writer=$!

run() {
    "$millstream" run job.sql --checkpoint state --every 500ms --quiet &
    job=$!
}
counted() { cat out/part-* 2>/dev/null | awk -F, '{ sum += $3 } END { print sum + 0 }'; }

echo "==> The job begins: millstream run job.sql --checkpoint state --every 500ms"
run
for crash in 1 2; do
    sleep 3
    kill -9 $job
    wait $job 2>/dev/null || true
    echo "==> kill -9: $(counted) clicks are counted and visible; the same command again"
    run
done
wait $writer
sleep 1
"$millstream" stop --drain $job >/dev/null
wait $job 2>/dev/null
written=$(cat in/*.csv | grep -vc page)
echo "==> The job is drained: $written clicks were written, $(counted) are counted"
"$millstream" checkpoint list state
[ "$written" = "$(counted)" ]
