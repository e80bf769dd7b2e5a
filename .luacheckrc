std = "lua54"
read_globals = { "class", "numel" }
max_line_length = 100
exclude_files = { "build*/", "tests/fixtures/" }
