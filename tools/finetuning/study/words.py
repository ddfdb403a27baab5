"""The words of all synthetic texts."""

NAMES = ("Ann", "Ben", "Cara", "Dan", "Eva", "Finn", "Gita", "Hugo", "Ida", "Jon", "Kim", "Leo", "Mia", "Nils", "Olga", "Paul",
         "Rosa", "Sam", "Tina", "Uwe", "Vera", "Walt", "Yara", "Zoe")
CITIES = ("Oslo", "Rome", "Paris", "Berlin", "Lima", "Cairo", "Delhi", "Tokyo", "Quito", "Dakar", "Riga", "Bern")
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
THINGS = ("pens", "cups", "books", "keys", "coins", "stones", "apples", "chairs", "maps", "shells")
TOPICS = ("rent", "lunch", "taxes", "garden", "music", "school", "travel", "budget", "hiking", "dinner")
VARIABLES = ("row", "item", "price", "total", "count", "left", "right", "name", "user", "page", "line", "word", "node", "cost",
             "size", "rate", "image", "query", "token", "block")
FUNCTIONS = ("add", "scale", "merge", "load", "parse", "clean", "find", "sort", "join", "split", "check", "save")
