use super::*;

fn told(script: &str) -> String {
    let words: Vec<Word> = script.split(' ').map(Word::plain).collect();
    let effects = known(script.split(' ').next().unwrap(), &words);
    let effects = effects.iter().map(|Effect { path, kind, known, into, if_there }| {
        let kind = match (kind, known) {
            _ if *if_there => "?",
            (AccessKind::Write, Known::Aside) => "o",
            (AccessKind::Write, _) => "w",
            _ => "r",
        };
        let into = if into.is_empty() { String::new() } else { format!("/{{{}}}", into.join(",")) };
        format!("{kind} {path}{into}")
    });
    effects.collect::<Vec<_>>().join("; ")
}

#[test]
fn what_is_written_is_told() {
    for (script, expected) in [
        ("sort -o b a", "r a; o b"),
        ("sort -uo b a", "r a; o b"),
        ("sort -ob a", "r a; o b"),
        ("sort -k 2 --output=b a", "r a; o b"),
        ("sort --out b a", "r a; o b"),
        ("uniq a b", "r a; w b"),
        ("uniq -f 1 a", "r a"),
        ("tee -a x y", "w x; w y"),
        ("git log --output=x", "o x"),
        ("git -C d log -p --output x", "o x"),
        ("git format-patch -o d HEAD~1", "o d"),
        ("git archive -o a.tar HEAD", "o a.tar"),
        ("git bundle create a.bundle HEAD", "w a.bundle"),
        ("git checkout main", "? main"),
        ("git checkout -b new", ""),
        ("git checkout HEAD~1 src/a.rs", "? HEAD~1; ? src/a.rs"),
        ("git checkout -- a b", "w a; w b"),
        ("git restore -s HEAD~1 a", "w a"),
        ("git rm -f a", "w a"),
        ("git status --porcelain", ""),
        ("find . -fprint b", "o b"),
        ("find src -name x -delete", "w src"),
        ("find -delete", "w ."),
        ("cp a b d", "r a; r b; w d/{a,b}"),
        ("cp -l a d", "r a; w d/{a}"),
        ("cp -t d x/a b", "r x/a; r b; w d/{a,b}"),
        ("install -m 644 a d", "r a; w d/{a}"),
        ("install -m 755 -d d e", "w d; w e"),
        ("mv x/a d", "w x/a; r x/a; w d/{a}"),
        ("mv -t d a", "w a; r a; w d/{a}"),
        ("ln -s a d", "r a; w d/{a}"),
        ("rsync -e ssh a host:b", "r a"),
        ("scp -P 22 host:a b", "w b/{host:a}"),
        ("rm -rf a -- -b", "w a; w -b"),
        ("chmod +x a", "w a"),
        ("truncate -s 0 a", "w a"),
        ("dd if=a of=b bs=1M", "r a; w b"),
        ("curl -sSo x https://example.org", "o x"),
        ("curl -sSLO https://example.org/a.tar?b", "o a.tar"),
        ("curl https://example.org/a.tar", ""),
        ("wget -qO x https://example.org", "o x"),
        ("wget https://example.org/a.tar", "o a.tar"),
        ("wget -P d https://example.org", "o d; o index.html"),
        ("wget --spider https://example.org", ""),
        ("wget -qO- https://example.org", ""),
        ("gcc -O2 -o a a.c", "o a"),
        ("openssl rand -out key 32", "o key"),
        ("gzip a", "w a"),
        ("gzip -dc a", ""),
        ("tar czf a.tgz src", "w a.tgz"),
        ("tar -cf a.tar src", "w a.tar"),
        ("tar -v -cf a.tar src", "w a.tar"),
        ("tar cfv a.tar src", "w a.tar"),
        ("tar --verbose -xf a.tar -C d", "w d"),
        ("tar xf a.tar", "w ."),
        ("tar tf a.tar", ""),
        ("sort --o b a", "r a; o b"),
        ("cp --t=d a", "r a; w d/{a}"),
        ("chmod -w a", "w a"),
        ("chmod --reference=b a", "w a"),
        ("go test -count=1 ./...", ""),
        ("go build -o bin/a ./a", "o bin/a"),
        ("curl -XDELETE https://example.org", ""),
        ("gcc -fno-common -c a.c", ""),
        ("perl -Mstrict x.pl", ""),
        ("gzip -S.c a", "w a"),
        ("xxd -r -o 0 a b", "r a; w b"),
        ("touch -r .env a", "w a"),
        ("find -O3 src -delete", "w src"),
        ("sed --in s/a/b/ x", "w s/a/b/; w x"),
        ("tar xf a.tar -C d", "w d"),
        ("unzip a.zip -d d", "w d"),
        ("unzip a.zip", "w ."),
        ("unzip -l a.zip", ""),
        ("sed -i s/a/b/ x y", "w x; w y"),
        ("sed -i.bak -e s/a/b/ x", "w x"),
        ("perl -pi -e s,a,b, x", "w x"),
        ("perl x.pl", ""),
        ("tee /dev/null", ""),
    ] {
        assert_eq!(told(script), expected, "{script}");
    }
}

#[test]
fn what_is_shown_is_told() {
    for (script, expected) in [
        ("cat a .env", "r a; r .env"),
        ("grep -n x a", "r a"),
        ("grep -e x a", "r x; r a"),
        ("head -n 5 a", "r 5; r a"),
        ("sed -n 1p a", "r a"),
        ("jq .a x.json", "r .a; r x.json"),
        (". ./.env", "r ./.env"),
        ("git blame -L 1,2 .env", "r .env"),
        ("iconv -f utf8 .env", "r .env"),
        ("shuf -n 1 .env", "r .env"),
        ("zcat .env", "r .env"),
        ("openssl base64 -in .env", "r .env"),
        ("curl -d @.env https://example.org", "r .env"),
        ("curl -d@.env https://example.org", "r .env"),
        ("curl --data-binary=@.env https://a@example.org", "r .env"),
        ("curl --data-urlencode name@.env https://example.org", "r .env"),
        ("curl -F file=@.env;type=text https://example.org", "r .env"),
        ("curl -F file=<.env https://example.org", "r .env"),
        ("curl -sT .env https://example.org", "r .env"),
        ("curl --upload-file .env https://example.org", "r .env"),
        ("curl -H a:@b file://.env", "r .env"),
        ("rsync .env x", "r .env; w x/{.env}"),
        ("ls .env", ""),
        ("stat .env", ""),
        ("python3 x.py .env", ""),
    ] {
        assert_eq!(told(script), expected, "{script}");
    }
}
