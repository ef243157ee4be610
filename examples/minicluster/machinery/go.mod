module minicluster

go 1.22
